"""The RPCs of PolicyService, in the order of the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc.aio
from toolmesh.authz.v1 import policy_service_pb2 as pb
from toolmesh.authz.v1 import policy_service_pb2_grpc as rpc

from libs.common.call_context import serving
from services.authz.convert import policies as convert
from services.authz.domain.policies.activate_policy_set import ActivatePolicySet
from services.authz.domain.policies.ask_policy_set import AskPolicySet
from services.authz.domain.policies.explain_decision import ExplainDecision
from services.authz.domain.policies.get_policy_set import GetPolicySet
from services.authz.domain.policies.list_policy_sets import ListPolicySets
from services.authz.domain.policies.put_policy import PutPolicy
from services.authz.domain.policies.replay_policy_set import ReplayPolicySet
from services.authz.domain.policies.rollback_policy_set import RollbackPolicySet
from services.authz.domain.policies.validate_policy import ValidatePolicy

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class PolicyHandlers(rpc.PolicyServiceServicer):
    """Converts, makes one call to the domain, and converts back."""

    put_policy: PutPolicy
    validate_policy: ValidatePolicy
    get_policy_set: GetPolicySet
    list_policy_sets: ListPolicySets
    activate_policy_set: ActivatePolicySet
    rollback_policy_set: RollbackPolicySet
    explain_decision: ExplainDecision
    replay_policy_set: ReplayPolicySet
    ask_policy_set: AskPolicySet

    async def PutPolicy(self, request: pb.PutPolicyRequest, context: Context) -> pb.PutPolicyResponse:
        stored = await self.put_policy.execute(
            convert.change_of(request), request.comment, convert.actor_name(serving())
        )
        return pb.PutPolicyResponse(policy_set=convert.set_message(stored))

    async def ValidatePolicy(self, request: pb.ValidatePolicyRequest, context: Context) -> pb.ValidatePolicyResponse:
        problems = await self.validate_policy.execute(convert.change_of(request))
        return pb.ValidatePolicyResponse(problems=convert.problem_messages(problems))

    async def GetPolicySet(self, request: pb.GetPolicySetRequest, context: Context) -> pb.GetPolicySetResponse:
        stored = await self.get_policy_set.execute(convert.number_of(request.name))
        return pb.GetPolicySetResponse(policy_set=convert.set_message(stored))

    async def ListPolicySets(self, request: pb.ListPolicySetsRequest, context: Context) -> pb.ListPolicySetsResponse:
        page, next_page_token = await self.list_policy_sets.execute(request.page_size, request.page_token)
        sets = [convert.set_message(stored) for stored in page]
        return pb.ListPolicySetsResponse(policy_sets=sets, next_page_token=next_page_token)

    async def ActivatePolicySet(
        self, request: pb.ActivatePolicySetRequest, context: Context
    ) -> pb.ActivatePolicySetResponse:
        number, expected = convert.number_of(request.name), convert.number_of(request.expected_active)
        stored = await self.activate_policy_set.execute(number or 0, expected, convert.actor_name(serving()))
        return pb.ActivatePolicySetResponse(policy_set=convert.set_message(stored))

    async def RollbackPolicySet(
        self, request: pb.RollbackPolicySetRequest, context: Context
    ) -> pb.RollbackPolicySetResponse:
        stored = await self.rollback_policy_set.execute(
            convert.number_of(request.expected_active), convert.actor_name(serving())
        )
        return pb.RollbackPolicySetResponse(policy_set=convert.set_message(stored))

    async def ExplainDecision(self, request: pb.ExplainDecisionRequest, context: Context) -> pb.ExplainDecisionResponse:
        explanation = await self.explain_decision.execute(request.name.removeprefix("decisions/"), serving().identity)
        return convert.explanation_message(explanation)

    async def ReplayPolicySet(
        self, request: pb.ReplayPolicySetRequest, context: Context
    ) -> AsyncIterator[pb.ReplayPolicySetResponse]:
        async for progress in self.replay_policy_set.execute(convert.number_of(request.name) or 0, request.decisions):
            yield convert.progress_message(progress)

    async def AskPolicySet(self, request: pb.AskPolicySetRequest, context: Context) -> pb.AskPolicySetResponse:
        questions = [convert.question_of(question) for question in request.questions]
        version, answers = await self.ask_policy_set.execute(convert.change_of(request), questions)
        return pb.AskPolicySetResponse(
            answers=[convert.answer_message(*each) for each in answers], policy_set_version=version
        )
