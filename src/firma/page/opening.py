"""Opening a page in the user's browser, if there is a desktop to show it on."""

import os
import sys


def opened(url: str) -> bool:
    """Whether a browser was asked to show it. On a server without a screen nothing is started: a browser in the
    terminal would get in the way."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    import webbrowser

    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
