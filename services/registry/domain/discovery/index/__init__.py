"""Every tool in columns, so that a search costs array arithmetic. The only part of discovery that needs numpy, and it is
imported when the first question comes: a registry that nobody searches does without its 15 MB."""

import os

# Read by numpy when it is imported. A product that is over in a millisecond gains nothing from threads, and those that it left waiting
# would go on turning round in the way of everybody else.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
