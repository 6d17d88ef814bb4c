"""What an operator can do about a notice: the first entry whose words the notice contains."""

_ADVICE = (
    ("is not valid before", "Set this machine's clock; the page of the other site shows what it sees."),
    ("expired on", "Run firma init, send the new site.toml to all members, and agree on a new ring file."),
    ("expires on", "Run firma init before that day, send site.toml to all members, and agree on a new ring file."),
    ("waiting for", "Call the sites that are named: they have not started, or cannot be reached (see firma doctor)."),
    ("paused", "Nothing is lost; rounds continue when enough members are back. Call the sites that are named."),
    ("proposing a new view", "Nothing: the others continue without that site, and let it in again when it is back."),
    ("is being agreed on", "Nothing, unless it lasts: then test the connections to the other sites with firma doctor."),
    ("was decided without this site", "Nothing: it asks to be let in again. If that lasts, check the network."),
    ("waiting to be let in", "Nothing: members are let in between two rounds."),
    ("one of which lies", "Call the sites that are named: one of them passes on something else than it got."),
    ("too few for a robust combine", "Call the sites that are missing; until they are back this site trains alone."),
    ("training diverged", "Agree on a lower learning rate (rate in [set]) and start over with a new ring file."),
    ("readable by others", "Nothing: it is private now. If others use this machine, ask who has read it."),
    ("could be read by others", "Nothing: it is private now."),
    ("scale", "Agree on standardise = per-client in a new ring file, or scale the data."),
    ("columns", "Compare the order of the columns with the other sites."),
    ("did not appear", "Call the sites that are named, then start again with --resume."),
    ("view ", "Nothing: the ring has changed. Make sure that whoever is missing knows."),
)  # fmt: skip


def what_to_do(notice: str) -> str:
    """One sentence for the operator; "" if there is nothing to say."""
    return next((advice for words, advice in _ADVICE if words in notice), "")
