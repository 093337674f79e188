"""`python -m ham.pretrained RUN_DIR NAME`: ship a run."""

import sys
from pathlib import Path

from ham.pretrained import publish

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m ham.pretrained RUN_DIR NAME")
    print(publish(Path(sys.argv[1]), sys.argv[2]))
