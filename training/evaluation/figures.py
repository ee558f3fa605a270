"""Figures of a setting from its records: a share with its Wilson interval, means, ratios of sums, and paired comparisons."""
import math

Z = 1.959963984540054  # of a two-sided interval of 95 %


def wilson(successes, count):
    """(lower, upper) of Wilson's score interval for a share (E. B. Wilson 1927), 95 %."""
    if count == 0:
        return 0.0, 1.0
    share = successes / count
    spread = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    centre, scale = share + Z * Z / (2 * count), 1 + Z * Z / count
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def mean_interval(values):
    """(mean, lower, upper) by the normal approximation; None, None for fewer than two values."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    half = Z * math.sqrt(variance / len(values))
    return mean, mean - half, mean + half


def median_interval(values):
    """(median, lower, upper): a 95 % interval from order statistics, which assumes nothing of the distribution of the values. Medians, because
    a machine that stalls for seconds at one question would rule a mean of milliseconds. None, None for fewer than six values."""
    ordered, n = sorted(values), len(values)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    if n < 6:
        return median, None, None
    low = max(0, math.floor((n - Z * math.sqrt(n)) / 2))
    return median, ordered[low], ordered[n - 1 - low]


def ratio_interval(above, below):
    """(sum(above) / sum(below), lower, upper), linearised; the pairs are independent. None if nothing is below."""
    total = math.fsum(below)
    if total <= 0:
        return None, None, None
    ratio, n = math.fsum(above) / total, len(above)
    if n < 2:
        return ratio, None, None
    residual = math.fsum((a - ratio * b) ** 2 for a, b in zip(above, below))
    half = Z * math.sqrt(residual * n / (n - 1)) / total
    return ratio, ratio - half, ratio + half


def bleu(counts):
    """(BLEU of all answers together, 0 to 100, [what each answer adds to its error]) from tasks.bleu_counts of each (Papineni et al.,
    ACL 2002, section 2.3). Linearised: an answer moves the logarithm of BLEU by the derivative of the sums. None, [] if no four words
    agree."""
    sums = [math.fsum(column) for column in zip(*counts)]
    if min(sums) <= 0:
        return None, []
    length, reference = sums[8:]
    log_bleu = sum(math.log(sums[i] / sums[i + 4]) for i in range(4)) / 4 + min(0.0, 1 - reference / length)
    slopes = [1 / (4 * s) for s in sums[:4]] + [-1 / (4 * s) for s in sums[4:8]]
    slopes += [reference / length ** 2, -1 / length] if length < reference else [0.0, 0.0]
    return 100 * math.exp(log_bleu), [math.fsum(s * c for s, c in zip(slopes, row)) for row in counts]


def _error(shares):
    """The half width of the 95 % interval of a sum of independent parts whose mean is 0."""
    n = len(shares)
    return Z * math.sqrt(math.fsum(share ** 2 for share in shares) * n / (n - 1))


def bleu_interval(counts):
    """(BLEU, lower, upper), on a scale of logarithms. None, None for fewer than two answers."""
    value, shares = bleu(counts)
    if value is None or len(counts) < 2:
        return value, None, None
    factor = math.exp(_error(shares))
    return value, value / factor, value * factor


def bleu_difference(counts, others):
    """(BLEU - BLEU of the others, lower, upper) of answers to the same questions in the same order; None without two values."""
    (value, shares), (other, other_shares) = bleu(counts), bleu(others)
    if value is None or other is None:
        return None, None, None
    if len(counts) < 2:
        return value - other, None, None
    half = _error([value * a - other * b for a, b in zip(shares, other_shares)])
    return value - other, value - other - half, value - other + half


def sign_test(wins, losses):
    """The two-sided p-value of so many wins and losses if both were equally likely, exact (McNemar's test)."""
    n = wins + losses
    tail = sum(math.comb(n, k) for k in range(min(wins, losses) + 1))
    return min(1.0, 2 * tail / 2 ** n)


def summarise(records):
    """The figures of one variant, each (value, lower, upper). `quality` is the exact match, BLEU, or the log-likelihood per token. Speeds
    are medians over the questions."""
    column = lambda key: [record[key] for record in records]
    if "correct" in records[0]:
        right = sum(column("correct"))
        quality = (right / len(records), *wilson(right, len(records)))
    elif "bleu_counts" in records[0]:
        quality = bleu_interval(column("bleu_counts"))
    else:
        known = [value for value in column("log_likelihood") if value is not None]
        quality = mean_interval(known) if known else (None, None, None)
    joules = column("joules")
    return {"count": len(records), "quality": quality,
            "answer_rate": median_interval([record["tokens"] / record["seconds"] for record in records]),
            "beam_rate": median_interval([record["beam_tokens"] / record["seconds"] for record in records]),
            "block_efficiency": ratio_interval(column("layers"), column("passes")),
            "seconds": median_interval(column("latency")),
            "joules": None if None in joules else mean_interval(joules)[0],
            "distinct": mean_interval(column("distinct"))[0],
            "drafted": sum(column("drafted")), "plain_rounds": sum(column("plain_rounds"))}


def common(records, others, key):
    """[(here, there)] of the questions that both have answered."""
    there = {record["line"]: record[key] for record in others}
    return [(record[key], there[record["line"]]) for record in records if record["line"] in there]


def speed(records, others):
    """How many times as fast the records are as the others (value, lower, upper): the geometric mean of the ratios of times over the
    questions that both have answered. None without one."""
    logs = [math.log(there / here) for here, there in common(records, others, "seconds") if here > 0 and there > 0]
    if not logs:
        return None, None, None
    return tuple(None if part is None else math.exp(part) for part in mean_interval(logs))


def compare(records, others):
    """(right only here, right only there, p) over the questions that both have answered."""
    pairs = common(records, others, "correct")
    wins, losses = pairs.count((True, False)), pairs.count((False, True))
    return wins, losses, sign_test(wins, losses)


def pareto_front(points):
    """The points (speed, quality) that no other point beats in one and reaches in the other, by rising speed."""
    front = []
    for speed, quality in sorted(points, key=lambda p: (-p[0], -p[1])):
        if not front or quality > front[-1][1]:
            front.append((speed, quality))
    return front[::-1]
