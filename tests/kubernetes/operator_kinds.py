"""Check manifests against the types of the Prometheus operator; run by the Python that has them.

They refuse values that do not fit and pass over fields that they do not know, so what comes out is compared with what
went in.
"""

import json
import sys

from cloudcoil.models.prometheus_operator import v1

for document in json.load(sys.stdin):
    read = getattr(v1, document["kind"]).model_validate(document)
    kept = json.loads(read.model_dump_json(by_alias=True, exclude_unset=True))
    if kept["spec"] != document["spec"]:
        sys.exit(f"{document['kind']}: expected only fields that the operator knows, found {document['spec']}")
    print(document["kind"])  # noqa: T201 - what the test reads
