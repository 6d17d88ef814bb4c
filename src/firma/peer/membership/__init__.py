"""Who is in the ring: views, the agreement on them, and who is given up for lost. Pure: no clock, sockets or disk."""
