"""The in-memory search index, in columns, so that a search is array arithmetic.

It is the only part of discovery that needs numpy (15 MB) and is imported with the first search.
"""

import os

# Read by numpy at import. A product of a millisecond gains nothing from threads, and idle BLAS threads spin on the
# cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
