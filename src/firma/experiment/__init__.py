"""From a configuration to results: `run` for one method and seed, `run_all` for a comparison.

A configuration is resolved before anything is trained: `resolve` checks it, loads the data once and gives every run
its row of the design table, its numbers and its seed. `execute` then trains one run after another.
"""

from firma.experiment.assembly import assemble as assemble
from firma.experiment.checks import device_of as device_of
from firma.experiment.execution import execute as execute
from firma.experiment.execution import run as run
from firma.experiment.execution import run_all as run_all
from firma.experiment.plan import Experiment as Experiment
from firma.experiment.plan import PlannedRun as PlannedRun
from firma.experiment.plan import resolve as resolve
