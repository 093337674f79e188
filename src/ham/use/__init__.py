"""A trained model at work: answers to one's own questions, and traces of how it came to them."""
