"""`python -m pyspark_ottla`: compile what Spark's workers run, for a machine or an image that is to start warm."""

from __future__ import annotations

from pyspark_ottla.kernels import main

if __name__ == "__main__":
    main()
