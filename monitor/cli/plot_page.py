"""The page around the picture of `cpcmon evaluate --plot FILE.html`: the same numbers as tables."""

from collections.abc import Sequence
from html import escape

from monitor.offline import Evaluation

HEADING = "Estimates against realised accuracy"
_CSS = """body{font:16px/1.5 sans-serif;color:#000;background:#fff;max-width:60rem;margin:2rem auto;padding:0 1rem}
svg{max-width:100%;height:auto}div{overflow-x:auto}table{border-collapse:collapse;margin:2rem 0}
caption{text-align:left;padding-bottom:.5rem;overflow-wrap:anywhere}
th,td{padding:.25rem .75rem;border-bottom:1px solid #ccc;text-align:right;font-variant-numeric:tabular-nums}
th:first-child{text-align:left}tbody th{font-weight:normal}"""


def forms(evaluations: Sequence[Evaluation], name: str) -> dict[str, str]:
    """Return the names of an estimator's forms: raw and scaled, or its only one."""
    both = any(f"{name}_ts" in evaluation.estimates for evaluation in evaluations)
    return {"raw": name, "scaled": f"{name}_ts"} if both else {"only": name}


def page(svg: str, evaluations: Sequence[Evaluation], names: Sequence[str], titles: Sequence[str]) -> str:
    """Return a page that needs nothing else: the picture, and the same numbers as tables."""
    picture = svg[svg.index("<svg ") :].replace("<svg ", f'<svg role="img" aria-label="{HEADING}" ', 1)
    tables = "".join(_table(*pair, names) for pair in zip(evaluations, titles, strict=True))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{HEADING}</title><style>{_CSS}</style></head>
<body><h1>cpcmon evaluate</h1>
{picture}
<p>Errors are estimate minus realised accuracy, in points: above zero, the estimate is too high.</p>
{tables}</body></html>
"""


def _table(evaluation: Evaluation, title: str, names: Sequence[str]) -> str:
    realised = evaluation.target_accuracy
    columns = ("Estimator", "Realised", "Raw", "Error of raw", "Scaled", "Error of scaled")
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    rows = []
    for name in names:
        cells: list[str] = []
        for form in forms([evaluation], name).values():
            value = evaluation.estimates.get(form)
            cells += ["no estimate", ""] if value is None else [f"{value:.3f}", f"{100 * (value - realised):+z.1f}"]
        # An only form stands beside the scaled ones, as in the table of `cpcmon evaluate`.
        cells = [f"{realised:.3f}", *[""] * (4 - len(cells)), *cells]
        rows.append(f'<tr><th scope="row">{escape(name)}</th><td>{"</td><td>".join(cells)}</td></tr>\n')
    return (
        f"<div><table><caption><strong>{escape(title)}</strong><br>realised accuracy {realised:.3f}, "
        f"source accuracy {evaluation.source_accuracy:.3f}, temperature {evaluation.temperature:.3f}</caption>\n"
        f"<thead><tr>{head}</tr></thead><tbody>\n{''.join(rows)}</tbody></table></div>\n"
    )
