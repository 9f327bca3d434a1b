"""How the records of a shard are told from those of others in the state.

A shard is what may move to another process as a whole, such as a partition of a topic. Sources without shards share one
that has no name, and whose records are kept under the name of the model alone.
"""

Shard = tuple[str, str]
"""A source, and the name that it gives the shard: `("stream", "predictions/3")`."""

COMMON: Shard = ("", "")
"""Shared by all sources that have no shards."""

# In no name of a model or source, since it cannot be typed.
_BETWEEN = "\x1f"


def stored_as(model: str, shard: Shard) -> str:
    """Return under which name a model's records of a shard are kept."""
    return model if shard == COMMON else _BETWEEN.join((model, *shard))


def parted(stored: str) -> tuple[str, Shard]:
    """Return the model and the shard of such a name."""
    model, *shard = stored.split(_BETWEEN, 2)
    return model, (shard[0], shard[1]) if len(shard) == len(COMMON) else COMMON


def told(stored: str) -> str:
    """Return such a name as people should read it."""
    model, (source, shard) = parted(stored)
    return f"{model} in {shard} of {source}" if source else model
