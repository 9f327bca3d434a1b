"""Parses a metrics page."""

from prometheus_client.parser import text_string_to_metric_families


def samples(page: bytes) -> dict[str, float]:
    """Return every series with its value; a duplicate is an error."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            series = f"{sample.name}{{{labels}}}"
            assert series not in found
            found[series] = sample.value
    return found


def families(page: bytes) -> dict[str, tuple[str, set[str]]]:
    """Return type and labels of every family, by its name in Prometheus."""
    found = {}
    for family in text_string_to_metric_families(page.decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        found[name] = ("untyped" if family.type == "unknown" else family.type, labels - {"le"})
    return found
