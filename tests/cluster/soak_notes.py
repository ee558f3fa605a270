"""What a process holds, noted from time to time, and whether it holds more and more."""
import pathlib
import statistics

GROWTH_SHARE, GROWTH_BYTES = 0.03, 8 << 20  # that its memory may grow by, whichever is more
MOST_PAIRS_OF = 400                         # notes that the slope is computed of


def note(pid):
    """{bytes, descriptors, threads} of a process."""
    folder = pathlib.Path(f"/proc/{pid}")
    fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return {"bytes": int(fields["VmRSS"].split()[0]) << 10, "descriptors": len(list((folder / "fd").iterdir())), "threads": int(fields["Threads"])}


def slope(points):
    """The median slope over all pairs of (x, y), Theil and Sen's: some notes may be far off. 0 of fewer than two points."""
    points = points[::1 + len(points) // MOST_PAIRS_OF]
    slopes = [(y1 - y0) / (x1 - x0) for i, (x0, y0) in enumerate(points) for x1, y1 in points[i + 1:] if x1 > x0]
    return statistics.median(slopes) if slopes else 0.0


def growth(notes):
    """Bytes by which the memory grew from the first to the last of the notes, which are (seconds, note), by its slope."""
    return slope([(at_s, held["bytes"]) for at_s, held in notes]) * (notes[-1][0] - notes[0][0])


def problems_of(name, notes):
    """What a process gained. `notes`: those after the warm-up."""
    first, last = notes[0][1], notes[-1][1]
    allowed = max(GROWTH_BYTES, GROWTH_SHARE * first["bytes"])
    found = []
    if growth(notes) > allowed:
        found.append(f"{name}: memory grows by {growth(notes) / 2**20:.1f} MiB in {notes[-1][0] - notes[0][0]:.0f} s; allowed: {allowed / 2**20:.1f}")
    for what in ("descriptors", "threads"):
        # The least of three, because a connection that was cut off may be closed a moment after the cluster is idle.
        before, after = (min(held[what] for _, held in part) for part in (notes[:3], notes[-3:]))
        if after > before:
            found.append(f"{name}: {after} {what}, {before} after the warm-up (now {last[what]})")
    return found
