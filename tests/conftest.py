"""What every test shares: how hard hypothesis tries, and where Apache Kafka's jars are.

A test marked `fuzz` leaves `max_examples` to the profile, so that `make fuzz` can raise it.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from bench.tools import cache_directory

# A busy machine is no failure, so no example has a deadline; pytest-timeout bounds the test as a whole.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), print_blob=True)
settings.register_profile(
    "fuzz", settings.get_profile("ci"), max_examples=int(os.environ.get("OTTLA_FUZZ_EXAMPLES", "2000"))
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))

# `make test` fetches the jars where Java and Maven are found; without them tests that want Kafka's tools skip.
os.environ.setdefault("KAFKA_JARS", str(cache_directory() / "jars" / "kafka"))
