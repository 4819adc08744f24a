"""The error table as plain Python. Generated from error_reason.proto by `make proto`. DO NOT EDIT."""

from enum import IntEnum
from typing import NamedTuple


class Row(NamedTuple):
    """What each protocol and vocabulary calls one reason; the columns are those of ErrorRow in the contract."""

    code: str
    category: str
    error_class: str
    grpc_status: int
    http_status: int
    jsonrpc_code: int
    mcp_tool_result: bool
    retryable: bool
    title: str
    resolution: str


class Reason(IntEnum):
    """What went wrong; the number is the number in the code."""

    INTERNAL = 3000
    SERVICE_UNAVAILABLE = 3001
    DEADLINE_EXCEEDED = 3002
    RATE_LIMITED = 3003
    INVALID_REQUEST = 3004
    UNAUTHENTICATED = 3005
    PEER_NOT_ALLOWED = 3006
    METHOD_NOT_FOUND = 3007
    INVALID_JSON = 3008
    INVALID_PARAMS = 3009
    PAYLOAD_TOO_LARGE = 3010
    PAGE_TOKEN_INVALID = 3011
    CANCELED = 3012
    ALREADY_EXISTS = 3013
    NOT_FOUND = 3014
    FAILED_PRECONDITION = 3015
    OVERLOADED = 3016
    ETAG_MISMATCH = 3017
    TOOL_NOT_FOUND = 3101
    TOOL_VERSION_NOT_FOUND = 3102
    TOOL_VERSION_CONFLICT = 3103
    TOOL_DEPRECATED = 3104
    TOOL_MANIFEST_INVALID = 3105
    TOOL_SEARCH_FAILED = 3106
    TOOL_UNAVAILABLE = 3107
    SCHEMA_NOT_LOADED = 3108
    TOKEN_EXPIRED = 3201
    TOKEN_SIGNATURE_INVALID = 3202
    TOKEN_MALFORMED = 3203
    TOOL_NOT_IN_TOKEN = 3204
    POLICY_ENGINE_ERROR = 3205
    PERMISSION_DENIED = 3206
    DID_NOT_FOUND = 3207
    TOKEN_AUDIENCE_INVALID = 3208
    SCOPE_MISSING = 3209
    APPROVAL_REQUIRED = 3210
    APPROVAL_REJECTED = 3211
    TOKEN_REVOKED = 3212
    AUTHORITY_EXCEEDED = 3213
    TOKEN_PROOF_INVALID = 3214
    POLICY_INVALID = 3215
    BUDGET_EXHAUSTED = 3216
    TICKET_REDEEMED = 3230
    TICKET_ARGUMENTS_CHANGED = 3231
    TICKET_POLICY_CHANGED = 3232
    TICKET_TOOL_CHANGED = 3233
    TICKET_TOKEN_REVOKED = 3234
    TICKET_EXPIRED = 3235
    TICKET_CALLER_MISMATCH = 3236
    SELF_APPROVAL = 3237
    TICKET_CLOSED = 3238
    APPROVER_NOT_ELIGIBLE = 3239
    TICKET_APPROVER_REVOKED = 3240
    TICKET_LINK_USED = 3241
    TICKET_LINK_EXPIRED = 3242
    ARGUMENTS_INVALID = 3301
    COERCION_FAILED = 3302
    RESULT_INVALID = 3303
    SANITIZATION_FAILED = 3304
    INJECTION_DETECTED = 3305
    HOOK_BLOCKED = 3306
    PREVIEW_REQUIRED = 3307
    EXECUTION_FAILED = 3401
    TOOL_TIMEOUT = 3402
    TOOL_OUT_OF_MEMORY = 3403
    TOOL_CRASHED = 3404
    SANDBOX_UNAVAILABLE = 3405
    NETWORK_POLICY_VIOLATION = 3406
    RESOURCE_LIMIT_EXCEEDED = 3407
    IDEMPOTENCY_CONFLICT = 3408
    IDEMPOTENCY_KEY_REQUIRED = 3409
    UNKNOWN_OUTCOME = 3410
    RESULT_TOO_LARGE = 3411
    SIBLING_CANCELED = 3412
    STREAM_DISCARDED = 3413
    PARTIAL_FAILURE = 3414
    SIDE_EFFECT_VIOLATION = 3415
    SANDBOX_NOT_READY = 3416
    CIRCUIT_OPEN = 3501
    EXTERNAL_UNAVAILABLE = 3502
    EXTERNAL_TIMEOUT = 3503
    EXTERNAL_RATE_LIMITED = 3504
    SECRET_STORE_UNAVAILABLE = 3601
    CREDENTIAL_NOT_FOUND = 3602
    CREDENTIAL_EXPIRED = 3603
    CREDENTIAL_UNREADABLE = 3604
    QUEUE_FULL = 3701
    INVOCATION_NOT_FOUND = 3702
    INVOCATION_CANCELED = 3703
    WEBHOOK_FAILED = 3704
    AUDIT_UNAVAILABLE = 3801
    AUDIT_RECORD_INVALID = 3802
    AUDIT_BACKPRESSURE = 3803
    DOCUMENT_SERVER_UNAVAILABLE = 3851
    DOCUMENT_NOT_FOUND = 3852
    DOCUMENT_TIMEOUT = 3853
    DOCUMENT_CACHE_MISS = 3854
    DOCUMENT_PERMISSION_DENIED = 3855
    DOCUMENT_PROTOCOL_ERROR = 3856
    STATE_SERVER_UNAVAILABLE = 3901
    CHECKPOINT_FAILED = 3902
    CHECKPOINT_NOT_FOUND = 3903
    CHECKPOINT_CORRUPTED = 3904
    RESUME_FAILED = 3905
    STATE_TOO_LARGE = 3906
    STATE_PROTOCOL_ERROR = 3907


ROWS: dict[Reason, Row] = {
    Reason.INTERNAL: Row('E3000', 'INTERNAL_TOOL_ERROR', 'execution_failed', 13, 500, -32603, True, True, 'Something inside the mesh failed.', 'Retry with exponential backoff; quote the trace id if it persists.'),
    Reason.SERVICE_UNAVAILABLE: Row('E3001', 'UPSTREAM_FAILURE', 'dependency_unavailable', 14, 503, -32050, True, True, 'The service cannot take the call now.', 'Wait and retry.'),
    Reason.DEADLINE_EXCEEDED: Row('E3002', 'DEADLINE_EXCEEDED', 'timeout', 4, 504, -32008, True, True, "The caller's deadline passed before the answer was ready.", 'Allow more time, or make the tool faster, then retry.'),
    Reason.RATE_LIMITED: Row('E3003', 'RATE_LIMITED', 'rate_limited', 8, 429, -32029, True, True, 'The caller sent more calls than its rate allows.', 'Slow down; wait for the stated delay before the next try.'),
    Reason.INVALID_REQUEST: Row('E3004', 'INVALID_INPUT', 'invalid_arguments', 3, 400, -32600, False, False, 'The request does not have the form the contract asks for.', 'Compare the request with its contract; every violation is listed in the details.'),
    Reason.UNAUTHENTICATED: Row('E3005', 'AUTHORIZATION_DENIED', 'permission_denied', 16, 401, -32001, False, False, 'The call carries no credential.', 'Send a capability token as a bearer token.'),
    Reason.PEER_NOT_ALLOWED: Row('E3006', 'AUTHORIZATION_DENIED', 'permission_denied', 7, 403, -32003, False, False, 'This peer may not call this method.', "Call through a peer that the method's policy row names."),
    Reason.METHOD_NOT_FOUND: Row('E3007', 'INVALID_INPUT', 'capability_gap', 12, 404, -32601, False, False, 'No such method is served here.', "Check the method's name and the server's version."),
    Reason.INVALID_JSON: Row('E3008', 'INVALID_INPUT', 'invalid_arguments', 3, 400, -32700, False, False, 'The payload is not the JSON that the contract allows.', 'Send UTF-8 JSON without duplicate keys, NaN or Infinity, with integers of at most 64 bits and fractions of at most 17 digits that a double holds; send other numbers as strings.'),
    Reason.INVALID_PARAMS: Row('E3009', 'INVALID_INPUT', 'invalid_arguments', 3, 400, -32602, False, False, "The method's parameters are missing, unknown or of the wrong type.", "Compare the parameters with the method's description."),
    Reason.PAYLOAD_TOO_LARGE: Row('E3010', 'INVALID_INPUT', 'invalid_arguments', 3, 413, -32600, False, False, 'The request is larger or more deeply nested than the mesh accepts.', 'Send less, or pass a reference instead of the content.'),
    Reason.PAGE_TOKEN_INVALID: Row('E3011', 'INVALID_INPUT', 'invalid_arguments', 3, 400, -32602, False, False, 'The page token was not made for this query.', 'Start again from the first page, and keep the query unchanged between pages.'),
    Reason.CANCELED: Row('E3012', 'PRECONDITION_FAILED', 'canceled', 1, 499, -32012, True, False, 'The caller withdrew the call.', 'Send it again if it is still wanted.'),
    Reason.ALREADY_EXISTS: Row('E3013', 'CONFLICT', 'execution_failed', 6, 409, -32009, True, False, 'Something else already has this identity.', 'Choose another identity, or read the one that exists.'),
    Reason.NOT_FOUND: Row('E3014', 'PRECONDITION_FAILED', 'execution_failed', 5, 404, -32004, True, False, 'The named resource does not exist, or is not visible to this caller.', 'Check the resource name.'),
    Reason.FAILED_PRECONDITION: Row('E3015', 'PRECONDITION_FAILED', 'execution_failed', 9, 400, -32015, True, False, 'The resource is not in a state that allows this.', 'Read the resource and act on its present state.'),
    Reason.OVERLOADED: Row('E3016', 'RESOURCE_EXHAUSTED', 'rate_limited', 8, 429, -32029, True, True, 'The service is at its limit of concurrent calls.', 'Retry with backoff.'),
    Reason.ETAG_MISMATCH: Row('E3017', 'CONFLICT', 'execution_failed', 10, 409, -32012, True, False, 'The resource has changed since it was read.', 'Read it again, and decide on what it is now.'),
    Reason.TOOL_NOT_FOUND: Row('E3101', 'TOOL_NOT_FOUND', 'unknown_tool', 5, 404, -32004, False, False, 'No tool of this name is registered.', "Check the tool's name; list or search the registry."),
    Reason.TOOL_VERSION_NOT_FOUND: Row('E3102', 'TOOL_NOT_FOUND', 'unknown_tool', 5, 404, -32004, False, False, 'The tool has no version that satisfies the request.', "List the tool's versions and widen the constraint."),
    Reason.TOOL_VERSION_CONFLICT: Row('E3103', 'CONFLICT', 'execution_failed', 6, 409, -32009, True, False, 'A version is immutable, and another content is registered under this number.', 'Register the change under a new version number.'),
    Reason.TOOL_DEPRECATED: Row('E3104', 'PRECONDITION_FAILED', 'capability_gap', 9, 410, -32010, True, False, 'The version has passed its sunset and no longer runs.', 'Move to the successor that the details name.'),
    Reason.TOOL_MANIFEST_INVALID: Row('E3105', 'INVALID_INPUT', 'schema_validation_failed', 3, 422, -32602, True, False, 'The manifest fails one or more conditions of admission.', 'Mend every condition in the details; they are listed all at once.'),
    Reason.TOOL_SEARCH_FAILED: Row('E3106', 'UPSTREAM_FAILURE', 'dependency_unavailable', 13, 500, -32603, True, True, 'Semantic search is not answering.', 'Retry, or search by name and keyword.'),
    Reason.TOOL_UNAVAILABLE: Row('E3107', 'PRECONDITION_FAILED', 'setup_required', 9, 409, -32015, True, False, 'The tool exists but may not run in its present state.', 'Read the state and its reason; enable, release or set up the tool, or give the executor what it lacks.'),
    Reason.SCHEMA_NOT_LOADED: Row('E3108', 'PRECONDITION_FAILED', 'schema_not_loaded', 9, 409, -32015, True, False, 'The tool is deferred and its schema was not loaded in this surface.', "Load the tool's schema through discovery, then call it."),
    Reason.TOKEN_EXPIRED: Row('E3201', 'AUTHORIZATION_DENIED', 'permission_denied', 16, 401, -32001, False, False, "The capability token's time is over.", 'Obtain a new token.'),
    Reason.TOKEN_SIGNATURE_INVALID: Row('E3202', 'AUTHORIZATION_DENIED', 'permission_denied', 16, 401, -32001, False, False, 'The token is not signed by a key this mesh trusts.', "Obtain a token from the mesh's issuer."),
    Reason.TOKEN_MALFORMED: Row('E3203', 'AUTHORIZATION_DENIED', 'permission_denied', 16, 401, -32001, False, False, 'The credential is not a well-formed capability token.', 'Check that the whole token was sent, unchanged.'),
    Reason.TOOL_NOT_IN_TOKEN: Row('E3204', 'AUTHORIZATION_DENIED', 'permission_denied', 7, 403, -32003, True, False, 'The token does not name this tool at this version.', 'Request a token that covers the tool.'),
    Reason.POLICY_ENGINE_ERROR: Row('E3205', 'UPSTREAM_FAILURE', 'dependency_unavailable', 14, 503, -32050, True, True, 'The decision could not be made, so the call is refused.', 'Retry; if it persists, check the authorization service.'),
    Reason.PERMISSION_DENIED: Row('E3206', 'AUTHORIZATION_DENIED', 'policy_blocked', 7, 403, -32003, True, False, 'Policy denies this call.', 'Read the reasons; request the missing scope or a policy change.'),
    Reason.DID_NOT_FOUND: Row('E3207', 'AUTHORIZATION_DENIED', 'permission_denied', 5, 404, -32004, True, False, 'The decentralised identifier of the subject or the agent cannot be resolved.', "Use a did:key, or a did:web of the mesh's trust domain; for any other, have TOOLMESH_DID_RESOLVER of authz name where its document is."),
    Reason.TOKEN_AUDIENCE_INVALID: Row('E3208', 'AUTHORIZATION_DENIED', 'permission_denied', 16, 401, -32001, False, False, 'The token was made for another audience or by another issuer.', 'Obtain a token made for this mesh.'),
    Reason.SCOPE_MISSING: Row('E3209', 'AUTHORIZATION_DENIED', 'permission_denied', 7, 403, -32003, True, False, 'The token lacks a scope that the method or tool requires.', 'Request a token with the scopes in the details.'),
    Reason.APPROVAL_REQUIRED: Row('E3210', 'APPROVAL_REQUIRED', 'policy_blocked', 9, 403, -32020, True, False, 'A person must approve this call before it runs.', 'Wait until the ticket in the details is approved (GetTicket shows its state), then send the same call again with it.'),
    Reason.APPROVAL_REJECTED: Row('E3211', 'AUTHORIZATION_DENIED', 'approval_rejected', 7, 403, -32003, True, False, 'An approver denied the call, or no decision was made in time.', 'Ask the approver; a new request needs a new reason.'),
    Reason.TOKEN_REVOKED: Row('E3212', 'AUTHORIZATION_DENIED', 'permission_denied', 16, 401, -32001, False, False, 'The token, or one it was derived from, was revoked.', 'Obtain a new token.'),
    Reason.AUTHORITY_EXCEEDED: Row('E3213', 'AUTHORIZATION_DENIED', 'permission_denied', 7, 403, -32003, True, False, 'A derived credential asked for more than its parent holds.', "Ask for a subset of the parent's authority."),
    Reason.TOKEN_PROOF_INVALID: Row('E3214', 'AUTHORIZATION_DENIED', 'permission_denied', 16, 401, -32001, False, False, 'The token is bound to a key or certificate that the caller did not prove to hold.', 'Send a fresh proof made with the key that the token names.'),
    Reason.POLICY_INVALID: Row('E3215', 'INVALID_INPUT', 'schema_validation_failed', 3, 422, -32602, False, False, 'The policies cannot be used as they are.', 'Correct what the details list, with document, line and column.'),
    Reason.BUDGET_EXHAUSTED: Row('E3216', 'RATE_LIMITED', 'rate_limited', 8, 429, -32029, True, False, 'The token, or one it was derived from, has spent its budget.', 'Obtain a token with a larger budget.'),
    Reason.TICKET_REDEEMED: Row('E3230', 'CONFLICT', 'approval_rejected', 9, 409, -32020, True, False, 'The approval was already used by another call.', 'Send the call without a ticket to ask for a new approval.'),
    Reason.TICKET_ARGUMENTS_CHANGED: Row('E3231', 'PRECONDITION_FAILED', 'approval_rejected', 9, 409, -32020, True, False, 'The approval is for other arguments.', 'Send the approved arguments, or the new ones without a ticket to ask for their approval.'),
    Reason.TICKET_POLICY_CHANGED: Row('E3232', 'PRECONDITION_FAILED', 'approval_rejected', 9, 409, -32020, True, False, 'The policies changed after the approval was requested.', 'Send the call without a ticket to ask for a new approval.'),
    Reason.TICKET_TOOL_CHANGED: Row('E3233', 'PRECONDITION_FAILED', 'approval_rejected', 9, 409, -32020, True, False, 'The approval is for another tool version.', 'Pin the approved version, or send the call without a ticket to ask for a new approval.'),
    Reason.TICKET_TOKEN_REVOKED: Row('E3234', 'AUTHORIZATION_DENIED', 'approval_rejected', 7, 403, -32003, True, False, 'The token that the approval was requested with was revoked.', 'Send the call without a ticket to ask for a new approval.'),
    Reason.TICKET_EXPIRED: Row('E3235', 'PRECONDITION_FAILED', 'approval_rejected', 9, 409, -32020, True, False, 'The approval expired before it was used.', 'Send the call without a ticket to ask for a new approval.'),
    Reason.TICKET_CALLER_MISMATCH: Row('E3236', 'AUTHORIZATION_DENIED', 'approval_rejected', 7, 403, -32003, True, False, 'The approval belongs to another caller.', 'Send the call without a ticket to ask for an approval of your own.'),
    Reason.SELF_APPROVAL: Row('E3237', 'AUTHORIZATION_DENIED', 'permission_denied', 7, 403, -32003, True, False, 'A person with a part in the call cannot decide about it.', 'Ask another member of the approver groups.'),
    Reason.TICKET_CLOSED: Row('E3238', 'PRECONDITION_FAILED', 'policy_blocked', 9, 409, -32020, True, False, 'The ticket is already decided, canceled or over.', 'Read the ticket; a new decision needs a new ticket.'),
    Reason.APPROVER_NOT_ELIGIBLE: Row('E3239', 'AUTHORIZATION_DENIED', 'permission_denied', 7, 403, -32003, True, False, 'The person may not decide about this ticket.', 'Use a token of your own, not delegated, with a group that the ticket asks.'),
    Reason.TICKET_APPROVER_REVOKED: Row('E3240', 'AUTHORIZATION_DENIED', 'approval_rejected', 7, 403, -32003, True, False, 'The token of a person who approved the call was revoked afterwards.', 'Send the call without a ticket to ask for a new approval.'),
    Reason.TICKET_LINK_USED: Row('E3241', 'CONFLICT', 'permission_denied', 9, 409, -32020, True, False, 'The link was already used.', 'Open the ticket from the list of approvals.'),
    Reason.TICKET_LINK_EXPIRED: Row('E3242', 'PRECONDITION_FAILED', 'permission_denied', 9, 409, -32020, True, False, 'The link has expired.', 'Open the ticket from the list of approvals.'),
    Reason.ARGUMENTS_INVALID: Row('E3301', 'INVALID_INPUT', 'schema_validation_failed', 3, 400, -32602, True, False, "The arguments do not satisfy the tool's input schema.", 'Mend every violation in the details; each names its place.'),
    Reason.COERCION_FAILED: Row('E3302', 'INVALID_INPUT', 'invalid_arguments', 3, 400, -32602, True, False, 'A value cannot become the declared type without loss.', 'Send the declared type.'),
    Reason.RESULT_INVALID: Row('E3303', 'INTERNAL_TOOL_ERROR', 'execution_failed', 13, 500, -32040, True, False, 'The tool returned something its own output schema forbids.', "Report it to the tool's author; the result was withheld."),
    Reason.SANITIZATION_FAILED: Row('E3304', 'INTERNAL_TOOL_ERROR', 'result_redacted', 13, 500, -32040, True, False, 'The result could not be redacted safely, so it was withheld.', 'Check the redaction rules of the tool.'),
    Reason.INJECTION_DETECTED: Row('E3305', 'INVALID_INPUT', 'invalid_arguments', 3, 400, -32602, True, False, 'An argument breaks a path, URL or command policy of the tool.', 'Send a value inside the policy.'),
    Reason.HOOK_BLOCKED: Row('E3306', 'PRECONDITION_FAILED', 'hook_blocked', 9, 403, -32003, True, False, 'A hook stopped the call.', "Read the hook's reason."),
    Reason.PREVIEW_REQUIRED: Row('E3307', 'PRECONDITION_FAILED', 'policy_blocked', 9, 412, -32003, True, False, 'The decision demands that the call is previewed first.', "Preview the call, then send it unchanged with the preview's token."),
    Reason.EXECUTION_FAILED: Row('E3401', 'INTERNAL_TOOL_ERROR', 'execution_failed', 13, 500, -32040, True, False, 'The tool reported a failure.', "Read the tool's message and correct the call; where it gave none, the cause is in the executor's log."),
    Reason.TOOL_TIMEOUT: Row('E3402', 'DEADLINE_EXCEEDED', 'timeout', 4, 504, -32008, True, True, 'The tool did not finish within its time and was stopped.', 'Allow more time within its class, or ask for less work.'),
    Reason.TOOL_OUT_OF_MEMORY: Row('E3403', 'RESOURCE_EXHAUSTED', 'execution_failed', 8, 500, -32040, True, False, 'The tool used more memory than its limit and was stopped.', "Ask for less work, or raise the tool's limit."),
    Reason.TOOL_CRASHED: Row('E3404', 'INTERNAL_TOOL_ERROR', 'execution_failed', 13, 500, -32040, True, True, "The tool's process ended unexpectedly.", "Retry once; if it repeats, the cause is in the executor's log."),
    Reason.SANDBOX_UNAVAILABLE: Row('E3405', 'UPSTREAM_FAILURE', 'sandbox_violation', 14, 500, -32050, True, True, 'No sandbox of the required strength could be made.', 'Retry; check that the required sandbox is installed.'),
    Reason.NETWORK_POLICY_VIOLATION: Row('E3406', 'AUTHORIZATION_DENIED', 'sandbox_violation', 7, 403, -32003, True, False, 'The tool tried to reach a place its network policy forbids.', "Call an allowed host, or change the tool's policy."),
    Reason.RESOURCE_LIMIT_EXCEEDED: Row('E3407', 'RESOURCE_EXHAUSTED', 'execution_failed', 8, 429, -32029, True, False, 'The call exceeds a resource limit or budget.', 'Ask for less, or raise the limit.'),
    Reason.IDEMPOTENCY_CONFLICT: Row('E3408', 'CONFLICT', 'invalid_arguments', 10, 409, -32009, True, False, 'The idempotency key was already used with other arguments.', 'Use a new key for a different call.'),
    Reason.IDEMPOTENCY_KEY_REQUIRED: Row('E3409', 'INVALID_INPUT', 'invalid_arguments', 3, 400, -32602, True, False, 'The tool changes state and the call carries no idempotency key.', 'Send a key that stays the same across retries.'),
    Reason.UNKNOWN_OUTCOME: Row('E3410', 'CONFLICT', 'partial_failure', 9, 409, -32015, True, False, 'The effect may or may not have happened, and the tool offers no safe way to tell.', 'Find out whether it happened, then settle the key that the metadata names: toolmesh keys settle.'),
    Reason.RESULT_TOO_LARGE: Row('E3411', 'RESOURCE_EXHAUSTED', 'result_too_large', 8, 500, -32040, True, False, 'The result exceeds what the tool may return.', 'Ask for less, or page through the result.'),
    Reason.SIBLING_CANCELED: Row('E3412', 'PRECONDITION_FAILED', 'sibling_canceled', 10, 409, -32012, True, True, 'Another call of the same group failed, so this one was stopped.', 'Retry after the failed sibling is resolved.'),
    Reason.STREAM_DISCARDED: Row('E3413', 'UPSTREAM_FAILURE', 'streaming_fallback_discarded', 10, 503, -32050, True, True, 'A partial stream was discarded in favour of a fallback.', "Use the fallback's result, or call again."),
    Reason.PARTIAL_FAILURE: Row('E3414', 'INTERNAL_TOOL_ERROR', 'partial_failure', 13, 500, -32040, True, False, 'Some parts of the call succeeded and others failed.', 'Read which parts failed before calling again.'),
    Reason.SIDE_EFFECT_VIOLATION: Row('E3415', 'INTERNAL_TOOL_ERROR', 'sandbox_violation', 13, 500, -32040, True, False, 'The tool changed what it did not declare, so nothing of it was kept.', 'The tool is in quarantine until an operator releases it.'),
    Reason.SANDBOX_NOT_READY: Row('E3416', 'UPSTREAM_FAILURE', 'dependency_unavailable', 14, 503, -32050, True, True, "The tool's sandbox was not ready in time.", 'Retry after the stated delay; if it repeats, allow a longer deadline.'),
    Reason.CIRCUIT_OPEN: Row('E3501', 'UPSTREAM_FAILURE', 'dependency_unavailable', 14, 503, -32050, True, True, "The tool's dependency failed repeatedly and is being left alone.", 'Wait for the stated delay.'),
    Reason.EXTERNAL_UNAVAILABLE: Row('E3502', 'UPSTREAM_FAILURE', 'dependency_unavailable', 14, 503, -32050, True, True, 'A service the tool depends on is unavailable.', 'Retry with backoff; check that service.'),
    Reason.EXTERNAL_TIMEOUT: Row('E3503', 'DEADLINE_EXCEEDED', 'timeout', 4, 504, -32008, True, True, 'A service the tool depends on did not answer in time.', 'Retry with backoff; check that service.'),
    Reason.EXTERNAL_RATE_LIMITED: Row('E3504', 'RATE_LIMITED', 'rate_limited', 8, 429, -32029, True, True, 'A service the tool depends on limits our rate.', 'Slow down.'),
    Reason.SECRET_STORE_UNAVAILABLE: Row('E3601', 'UPSTREAM_FAILURE', 'dependency_unavailable', 14, 503, -32050, True, True, 'The secret store is not answering.', 'Retry; check the secret store.'),
    Reason.CREDENTIAL_NOT_FOUND: Row('E3602', 'PRECONDITION_FAILED', 'credential_missing', 5, 404, -32004, True, False, 'A credential the tool needs is not provisioned.', 'Provision it in the secret store.'),
    Reason.CREDENTIAL_EXPIRED: Row('E3603', 'PRECONDITION_FAILED', 'credential_missing', 9, 401, -32015, True, False, 'A credential the tool needs has expired.', 'Rotate the credential.'),
    Reason.CREDENTIAL_UNREADABLE: Row('E3604', 'INTERNAL_TOOL_ERROR', 'credential_missing', 13, 500, -32040, True, False, 'A credential the tool needs cannot be decrypted.', 'Check the encryption keys.'),
    Reason.QUEUE_FULL: Row('E3701', 'RESOURCE_EXHAUSTED', 'rate_limited', 8, 503, -32029, True, True, 'The queue of waiting jobs is full.', 'Wait and retry.'),
    Reason.INVOCATION_NOT_FOUND: Row('E3702', 'PRECONDITION_FAILED', 'execution_failed', 5, 404, -32004, True, False, 'No invocation has this id.', 'Check the invocation id.'),
    Reason.INVOCATION_CANCELED: Row('E3703', 'PRECONDITION_FAILED', 'canceled', 1, 499, -32012, True, False, 'The invocation was canceled.', 'Submit it again if it is still wanted.'),
    Reason.WEBHOOK_FAILED: Row('E3704', 'UPSTREAM_FAILURE', 'dependency_unavailable', 13, 500, -32050, True, True, 'A completion notice could not be delivered.', 'Check the receiving endpoint; the result itself is kept.'),
    Reason.AUDIT_UNAVAILABLE: Row('E3801', 'UPSTREAM_FAILURE', 'dependency_unavailable', 14, 503, -32050, True, True, 'The audit log cannot take a record, so nothing was run.', 'Retry; check the audit service.'),
    Reason.AUDIT_RECORD_INVALID: Row('E3802', 'INTERNAL_TOOL_ERROR', 'execution_failed', 13, 500, -32603, True, False, 'A record could not be given its canonical form.', 'Report it with the trace id.'),
    Reason.AUDIT_BACKPRESSURE: Row('E3803', 'UPSTREAM_FAILURE', 'dependency_unavailable', 14, 503, -32050, True, True, 'The audit log is behind, so new work is refused.', 'Slow down and retry.'),
    Reason.DOCUMENT_SERVER_UNAVAILABLE: Row('E3851', 'UPSTREAM_FAILURE', 'dependency_unavailable', 14, 503, -32050, True, True, 'The document server is unavailable.', 'Retry; check that server.'),
    Reason.DOCUMENT_NOT_FOUND: Row('E3852', 'PRECONDITION_FAILED', 'execution_failed', 5, 404, -32004, True, False, 'The document does not exist.', "Check the document's name."),
    Reason.DOCUMENT_TIMEOUT: Row('E3853', 'DEADLINE_EXCEEDED', 'timeout', 4, 504, -32008, True, True, 'The document query took too long.', 'Ask for less, or allow more time.'),
    Reason.DOCUMENT_CACHE_MISS: Row('E3854', 'UPSTREAM_FAILURE', 'partial_failure', 0, 200, 0, True, True, 'The document was read from its source, not from the cache.', 'Nothing to do; this is a notice.'),
    Reason.DOCUMENT_PERMISSION_DENIED: Row('E3855', 'AUTHORIZATION_DENIED', 'permission_denied', 7, 403, -32003, True, False, 'The caller may not read the document.', 'Request access to the document.'),
    Reason.DOCUMENT_PROTOCOL_ERROR: Row('E3856', 'UPSTREAM_FAILURE', 'execution_failed', 13, 500, -32040, True, False, 'The document server broke its protocol.', "Check that server's log."),
    Reason.STATE_SERVER_UNAVAILABLE: Row('E3901', 'UPSTREAM_FAILURE', 'dependency_unavailable', 14, 503, -32050, True, True, 'The state server is unavailable.', 'Retry; check that server.'),
    Reason.CHECKPOINT_FAILED: Row('E3902', 'INTERNAL_TOOL_ERROR', 'execution_failed', 13, 500, -32040, True, True, 'A checkpoint could not be written.', 'Retry; check the state stores.'),
    Reason.CHECKPOINT_NOT_FOUND: Row('E3903', 'PRECONDITION_FAILED', 'execution_failed', 5, 404, -32004, True, False, 'The checkpoint does not exist.', "Check the checkpoint's id."),
    Reason.CHECKPOINT_CORRUPTED: Row('E3904', 'INTERNAL_TOOL_ERROR', 'execution_failed', 15, 500, -32040, True, False, "The checkpoint's content does not match its digest.", 'Resume from an earlier checkpoint.'),
    Reason.RESUME_FAILED: Row('E3905', 'INTERNAL_TOOL_ERROR', 'execution_failed', 13, 500, -32040, True, False, 'The invocation could not be resumed.', 'Start it again.'),
    Reason.STATE_TOO_LARGE: Row('E3906', 'RESOURCE_EXHAUSTED', 'result_too_large', 8, 500, -32040, True, False, 'The state could not be serialised within its limit.', 'Keep less state.'),
    Reason.STATE_PROTOCOL_ERROR: Row('E3907', 'UPSTREAM_FAILURE', 'execution_failed', 13, 500, -32040, True, False, 'The state server broke its protocol.', "Check that server's log."),
}
