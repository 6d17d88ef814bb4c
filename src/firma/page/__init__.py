"""Pages in a browser that follow a run or a site as it goes on: a read-only server, and the charts of `static/`."""
