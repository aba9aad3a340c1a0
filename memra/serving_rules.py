"""From settings to the policies of the gate and the lanes: a part of the composition root.

Arithmetic over settings; refuses to know actors beyond the rules that admission takes. Called by `memra.app`.
"""

from memra.actors.admission import AdmissionRules
from memra.engine.executor_choice import runs_on_gpu
from memra.gate.deadlines import DeadlineRules
from memra.gate.queueing import QueueLimits
from memra.gate.slots import SlotTable, lane_limits, queue_depth
from memra.lanes.policy import LanePolicy
from memra.settings import GateSettings, Settings
from memra.types import Lane

_GPU_SLO_MS, _CPU_SLO_MS = 50.0, 200.0
"""Aims for interactive steps: a prompt's chunk of useful length takes a CPU 100 ms, and half the aim is the chunk's."""


def lane_policy(settings: Settings) -> LanePolicy:
    """Return what each lane may do."""
    gate, lanes = settings.gate, settings.lanes
    return LanePolicy(
        slo_p99_ms=lanes.slo_p99_ms or (_GPU_SLO_MS if runs_on_gpu(settings.engine) else _CPU_SLO_MS),
        shed_at={Lane.JUDGE: lanes.shed_judge, Lane.HARVEST: lanes.shed_harvest},
        prefill_budget={
            Lane.INTERACTIVE: settings.engine.prefill_chunk_tokens,
            Lane.JUDGE: lanes.prefill_judge_tokens,
            Lane.HARVEST: lanes.prefill_harvest_tokens,
        },
        max_sessions={
            Lane.INTERACTIVE: gate.max_interactive,
            Lane.JUDGE: gate.max_judge,
            Lane.HARVEST: gate.max_harvest,
        },
    )


def slot_table(gate: GateSettings) -> SlotTable:
    """Return the slots of all lanes, none of them held."""
    limits = lane_limits(
        max_interactive=gate.max_interactive,
        max_judge=gate.max_judge,
        max_harvest=gate.max_harvest,
        max_queue_depth=gate.max_queue_depth,
    )
    return SlotTable(limits)


def admission_rules(settings: Settings) -> AdmissionRules:
    """Return what admission goes by."""
    gate = settings.gate
    return AdmissionRules(
        lanes=lane_policy(settings),
        window_s=settings.lanes.window_s,
        queue=QueueLimits(
            max_depth=queue_depth(gate.max_queue_depth, gate.max_interactive),
            wait_ceiling_s=gate.queue_wait_ceiling_s or None,
        ),
        slot_reset_s=gate.slot_reset_s,
    )


def deadline_rules(settings: Settings) -> DeadlineRules:
    """Return how long requests may take."""
    gate = settings.gate
    return DeadlineRules(
        max_timeout_ms=gate.timeout_ms_max,
        default_timeout_ms=gate.timeout_ms_default,
        max_stream_timeout_ms=gate.stream_timeout_ms_max or gate.timeout_ms_max,
        is_gated=gate.nonstream_deadline_gate,
        prefill_tok_s=gate.prefill_floor_tok_s,
        decode_tok_s=gate.decode_floor_tok_s,
    )
