"""The parts of a member's state machine, one subject per module; `member_machine.Member` puts them together. Pure."""
