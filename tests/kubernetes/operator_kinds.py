"""Check manifests against the types of the Prometheus operator; run by the Python that has them.

Prints a line for each. The types reject invalid values but ignore unknown fields, so the result is compared with the input.
"""

import json
import sys

from cloudcoil.models.prometheus_operator import v1

for document in json.load(sys.stdin):
    read = getattr(v1, document["kind"]).model_validate(document)
    kept = json.loads(read.model_dump_json(by_alias=True, exclude_unset=True))
    print(document["kind"], "known" if kept["spec"] == document["spec"] else "unknown")  # noqa: T201 - what the test reads
