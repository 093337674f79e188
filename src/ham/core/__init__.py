"""What everything stands on: errors, files, and index arithmetic of the tree."""
