"""Digests as words that can be read out on the telephone: one word for each byte.

No two words begin with the same three letters. Twelve words are 96 bits: nobody can make another file or certificate
that has the words of a given one. FIRMA itself always compares all 256 bits.
"""

_TEXT = """
    acorn actor agent album alley amber anchor angle ankle apple april arch arena armor arrow artist aspen atlas
    attic autumn avenue badge bagel baker balcony banana barrel basket beach beetle bell bench bicycle bishop
    blanket blossom boat bonus border bottle branch bread bridge broom bubble bucket buffalo button cabin cactus
    camera candle captain carpet castle cedar cello chalk cherry circus clay cliff clock coach cobra coffee
    comet copper coral cotton cousin cradle cricket crown crystal curtain cushion daisy dancer decade denim
    desert diamond dinner dolphin donkey dragon drum eagle easel echo editor elbow elephant emerald engine
    envelope essay estate fabric falcon feather fence fiddle finger flag flute forest fossil fountain frog fruit
    funnel galaxy garden gazelle ginger giraffe glacier goblet goose grape guitar hammer harbor hazel helmet
    heron hill hockey honey hornet hotel hunter igloo insect iron island ivory jacket jaguar jelly jewel jockey
    judge juggler jungle kayak kettle kitten knight ladder lagoon lantern lemon leopard library lily lizard
    lobster lotus lumber machine magnet mango marble meadow melon mirror monkey mosaic motor mountain museum
    napkin necklace needle nickel notebook nutmeg oasis ocean olive onion orange orchid ostrich otter oven owl
    oyster paddle palace panda parrot peach pencil pepper piano pigeon pillow planet pocket polar potato prairie
    pumpkin puzzle pyramid quarry quilt rabbit radio raven ribbon river robin rocket saddle salmon scarf season
    shadow sheriff silver sketch slipper soldier spider spoon squirrel statue sugar swan table teapot thunder
    tiger tomato tractor trumpet tulip turtle umbrella valley velvet village violin wagon walnut whistle window
    wizard yogurt zebra zipper
"""
WORDS = tuple(_TEXT.split())
_BYTES = 12


def spoken(digest: bytes) -> str:
    """The first twelve bytes of a digest as words, in groups of four."""
    words = [WORDS[byte] for byte in digest[:_BYTES]]
    return ", ".join(" ".join(words[start : start + 4]) for start in range(0, len(words), 4))


ANOTHER = "it has another ring file"


def differing(theirs: bytes, ours: bytes) -> str:
    """That a member has another ring file, with both digests as words."""
    return f"{ANOTHER}: its digest is {spoken(theirs)}; this site's is {spoken(ours)}"
