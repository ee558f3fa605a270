"""The codes of a synthetic recommender: its vocabulary, how likely a code follows another, and a catalogue of items drawn from that.

An item is one code of each of four levels, as residual quantisation of item embeddings gives them. A code is a token: <a_12> is code 12 of
the first level. After a code, the codes of the next level have log-weights gain * u.v + popularity, where u and v are random vectors of the
two codes; the model has the same vectors in its weights (make_recommender.py), so it prefers combinations that the catalogue has, without
knowing which it has."""
import numpy

LEVELS = "abcd"
SPECIAL = ("<pad>", "<s>", "</s>")
FIRST_CODE = len(SPECIAL) + 256   # before the codes: the special tokens and one token for each byte
TRAITS = 24                       # dimensions of u and v
GAINS = (0.0, 3.3, 4.2, 4.8)      # of each level: deeper levels have fewer children
ZIPF = 0.9                        # exponent of the popularity of codes of the first level
KEPT = 256                        # successors of a code that items are drawn from

COLOURS = "Amber Black Blue Bronze Copper Crimson Golden Green Grey Indigo Ivory Olive Red Silver Violet White".split()
STYLES = "Classic Compact Foldable Handmade Heavy Light Modern Nordic Outdoor Plain Portable Quiet Rustic Slim Striped Vintage".split()
THINGS = ("Armchair Backpack Basket Bench Blanket Blender Bookcase Bottle Bowl Broom Bucket Cabinet Camera Candle Chair Clock Coat Compass "
          "Cupboard Desk Drill Easel Fan Flute Fork Frame Glove Guitar Hammer Hammock Hat Helmet Jacket Kettle Keyboard Kite Knife Ladder "
          "Lamp Lantern Mirror Mug Pan Pen Pillow Plate Puzzle Racket Radio Rope Rug Scarf Shelf Shovel Skates Sofa Spoon Stool Table Tent "
          "Towel Tray Vase Watch").split()


def vocab_size(codes):
    """Ids of special tokens, bytes and codes, and unused ones up to a multiple of 64."""
    return -(-(FIRST_CODE + len(LEVELS) * codes) // 64) * 64


def token(level, code, codes):
    return FIRST_CODE + level * codes + code


def text(level, code):
    return f"<{LEVELS[level]}_{code}>"


def name(item, codes):
    """That of an item of token ids. Items of one code of the first level are things of one kind."""
    a, b, c, d = (int(part) - token(level, 0, codes) for level, part in enumerate(item))
    return f"{STYLES[b % len(STYLES)]} {COLOURS[c % len(COLOURS)]} {THINGS[a % len(THINGS)]} {a}-{b}-{c}-{d}"


class Codes:
    """popularity [4, codes], before [4, codes, TRAITS] and after [4, codes, TRAITS] of each code: u of the code, and v of the same code."""

    def __init__(self, codes, seed):
        draw = numpy.random.Generator(numpy.random.SFC64([seed, 1]))
        self.codes, self.seed = codes, seed
        ranks = numpy.stack([draw.permutation(codes) for _ in LEVELS])
        exponents = numpy.array([ZIPF, 0.3, 0.2, 0.1])[:, None]
        self.popularity = -exponents * numpy.log(ranks + 3.0)
        self.popularity -= self.popularity.mean(1, keepdims=True)
        self.before, self.after = (draw.standard_normal((len(LEVELS), codes, TRAITS)) for _ in range(2))

    def successors(self, level):
        """(codes [codes, kept] of this level that follow each code of the level before, their cumulative probabilities [codes, kept])"""
        kept = min(KEPT, self.codes)
        found, sums = numpy.empty((self.codes, kept), numpy.int64), numpy.empty((self.codes, kept))
        after = self.after[level].T * (GAINS[level] / numpy.sqrt(TRAITS))
        for begin in range(0, self.codes, 1024):
            rows = slice(begin, min(self.codes, begin + 1024))
            weights = (self.before[level - 1][rows] @ after + self.popularity[level]).astype(numpy.float32)
            best = numpy.argpartition(-weights, kept - 1, axis=1)[:, :kept]
            chosen = numpy.take_along_axis(weights, best, 1).astype(numpy.float64)
            chances = numpy.exp(chosen - chosen.max(1, keepdims=True))
            found[rows], sums[rows] = best, numpy.cumsum(chances / chances.sum(1, keepdims=True), axis=1)
        return found, sums

    def items(self, count):
        """[count, 4] token ids in ascending order, all different."""
        draw = numpy.random.Generator(numpy.random.SFC64([self.seed, 2]))
        first = numpy.exp(self.popularity[0])
        first /= first.sum()
        tables = [self.successors(level) for level in range(1, len(LEVELS))]
        keys = numpy.empty(0, numpy.int64)
        for _ in range(200):
            chosen = draw.choice(self.codes, size=count, p=first)
            drawn = chosen
            for codes, sums in tables:
                rows = numpy.arange(self.codes)[:, None]
                place = numpy.searchsorted((rows + sums).ravel(), chosen + draw.random(count) * (1 - 1e-9))
                chosen = codes[chosen, numpy.minimum(place - chosen * sums.shape[1], sums.shape[1] - 1)]
                drawn = drawn * self.codes + chosen
            # New items in the order in which they were drawn, so that likely ones are in the catalogue.
            new, places = numpy.unique(drawn, return_index=True)
            new = new[numpy.argsort(places)]
            keys = numpy.concatenate([keys, new[~numpy.isin(new, keys)]])[:count]
            if len(keys) == count:
                break
        else:
            raise ValueError(f"{self.codes} codes a level have no {count} items that are likely enough")
        keys.sort()
        parts = [keys // self.codes ** (len(LEVELS) - 1 - level) % self.codes for level in range(len(LEVELS))]
        return numpy.stack([token(level, part, self.codes) for level, part in enumerate(parts)], axis=1)
