"""What each attack does to a ring of five sites: every member is the command `firma join`, in a process of its own."""
