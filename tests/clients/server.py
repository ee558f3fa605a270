"""The cluster for clients: the small pair of tests/models with a chat template, and with more positions than it has learned,
since the prompts of clients are longer than its stories. Standard library only."""
import contextlib
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))
from cluster import Cluster  # noqa: E402
from model_folders import ended_by_eos_alone  # noqa: E402

MODEL = "stories260k"
POSITIONS = 8192


@contextlib.contextmanager
def cluster_for_clients():
    with tempfile.TemporaryDirectory() as folder:
        target = ended_by_eos_alone(f"{folder}/{MODEL}")
        config = json.loads((target / "config.json").read_text())
        (target / "config.json").write_text(json.dumps(dict(config, max_position_embeddings=POSITIONS)))
        with Cluster(target=target, coordinator_flags=("--chat_template=chatml",)) as cluster:
            yield cluster
