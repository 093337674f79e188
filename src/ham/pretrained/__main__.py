"""`python -m ham.pretrained NAME RUN_DIR...`: ship the best of a recipe's runs."""

import sys
from pathlib import Path

from ham.errors import InputError
from ham.pretrained import publish

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python -m ham.pretrained NAME RUN_DIR...")
    try:
        print(publish(sys.argv[1], [Path(path) for path in sys.argv[2:]]))
    except InputError as error:
        sys.exit(f"ham: {error}")
