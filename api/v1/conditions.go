package v1

// Condition types of an Echo. Types and reasons are part of the API: scripts and
// alerts may rely on them.
const (
	// ConditionReady is the summary. It is True only when the newest spec is rolled out completely, and new
	// connections through the Service reach only its servers. Otherwise its reason repeats the cause.
	ConditionReady = "Ready"

	// ConditionAvailable is True while at least one pod can respond through the Service,
	// possibly with an earlier spec.
	ConditionAvailable = "Available"

	// ConditionProgressing is True while the newest spec is being rolled out. Its transition time is the start
	// of that rollout, even if an earlier one had not completed.
	ConditionProgressing = "Progressing"

	// ConditionDegraded is True when a failure prevents the desired state and may need
	// a change by the user. Its message repeats the error of the failing component.
	ConditionDegraded = "Degraded"

	// ConditionStalled exists only while it is True: Degraded is True, Progressing is not, and the failure does not end by
	// itself, or has lasted for ten minutes. It repeats the reason and the message of Degraded. Flux, Helm and other tools
	// that use kstatus report a failure then.
	ConditionStalled = "Stalled"

	// ConditionOverridden is True while a child has a value that an admission policy or webhook
	// set in place of the operator's, in a field that does not affect the response. The message
	// names the child and the fields. The condition does not affect Ready.
	ConditionOverridden = "Overridden"

	// ConditionRouted exists only with spec.route. It is True when every Gateway that the route
	// names accepted the newest route, and resolved its reference to the Service. A rejection has
	// the reason of the Gateway's controller. Ready includes it.
	ConditionRouted = "Routed"

	// ConditionVerified exists only with spec.verify. It is True while the verifier receives the
	// declared response, False while it does not, and Unknown while the verifier does not run. False
	// names the layers that fail, and their nodes. Ready includes it: an Echo becomes Ready when its
	// response is verified, and remains so while the verifier does not run. A verifier that the operator
	// cannot write, or has to correct repeatedly, is a failure as of any other child: Degraded is True,
	// and Ready False.
	ConditionVerified = "Verified"
)

// Reasons of conditions that report no failure.
const (
	// ReasonReady means that the newest spec is rolled out and every desired pod is available.
	ReasonReady = "Ready"

	// ReasonServing means that at least one pod is available behind the Service.
	ReasonServing = "Serving"

	// ReasonNotServing means that no pod is available, or that the Echo has no Service.
	ReasonNotServing = "NotServing"

	// ReasonRollingOut means that pods of the newest spec are starting or old pods are stopping.
	ReasonRollingOut = "RollingOut"

	// ReasonRolledOut means that every pod runs the newest spec.
	ReasonRolledOut = "RolledOut"

	// ReasonPodsNotReady means that the newest spec is rolled out, but fewer pods than
	// desired are available.
	ReasonPodsNotReady = "PodsNotReady"

	// ReasonAsExpected means that no failure and no override was observed.
	ReasonAsExpected = "AsExpected"

	// ReasonChangedByAdmission means that an admission policy or webhook changed fields of a
	// child, and that the operator accepted the result.
	ReasonChangedByAdmission = "ChangedByAdmission"

	// ReasonTerminating means that the Echo is being deleted.
	ReasonTerminating = "Terminating"

	// ReasonAccepted means that every Gateway accepted the newest route.
	ReasonAccepted = "Accepted"

	// ReasonRouteNotCreated means that the operator has not created the HTTPRoute yet.
	ReasonRouteNotCreated = "RouteNotCreated"

	// ReasonRouteNotReconciled means that a Gateway has not responded for the newest route: the
	// Gateway does not exist, or its controller has not reconciled the route yet.
	ReasonRouteNotReconciled = "RouteNotReconciled"

	// ReasonVerified means that the verifier receives the declared response.
	ReasonVerified = "Verified"

	// ReasonVerifying means that a verifier of the newest spec has not decided yet.
	ReasonVerifying = "Verifying"

	// ReasonVerifierNotRunning means that the verifier does not run. The message has the cause, for
	// example that its image cannot be pulled.
	ReasonVerifierNotRunning = "VerifierNotRunning"

	// ReasonEveryNodeNotAllowed means that the operator does not allow verifiers on every node. An
	// administrator allows them with --allow-every-node-verification.
	ReasonEveryNodeNotAllowed = "EveryNodeNotAllowed"
)

// Reasons of failures, most severe first. Degraded has the reason and Ready repeats it.
const (
	// ReasonConflict means that an object with the name of the child exists and is not
	// controlled by this Echo. The operator does not touch the object, and creates the
	// child within half a minute after the object is removed.
	ReasonConflict = "Conflict"

	// ReasonRejected means that the API server rejected a child (quota, admission policy or
	// webhook, permission, validation), or that admission changed a field that determines the
	// response.
	ReasonRejected = "Rejected"

	// ReasonRepeatedDrift means that an external writer changes a child again after each
	// correction. The operator reverts the changes at intervals of up to 30 seconds.
	ReasonRepeatedDrift = "RepeatedDrift"

	// ReasonPodsRejected means that the API server rejected the pods: quota, LimitRange,
	// Pod Security or admission policy.
	ReasonPodsRejected = "PodsRejected"

	// ReasonImagePullFailed means that the server image cannot be pulled.
	ReasonImagePullFailed = "ImagePullFailed"

	// ReasonContainerCreateFailed means that the container cannot be created from its image.
	ReasonContainerCreateFailed = "ContainerCreateFailed"

	// ReasonCrashLooping means that the server repeatedly starts and exits.
	ReasonCrashLooping = "CrashLooping"

	// ReasonUnschedulable means that no node can run the pods.
	ReasonUnschedulable = "Unschedulable"

	// ReasonRouteNotFound means that an HTTPRoute in `route.overrides` does not exist. The operator waits
	// for it.
	ReasonRouteNotFound = "RouteNotFound"

	// ReasonRouteNotOverridable means that the operator cannot build an HTTPRoute with a higher
	// precedence than those in `route.overrides`.
	ReasonRouteNotOverridable = "RouteNotOverridable"

	// ReasonProgressDeadlineExceeded means that the rollout made no progress before its deadline.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"

	// ReasonGatewayAPINotInstalled means that the cluster does not serve HTTPRoute in
	// gateway.networking.k8s.io/v1. The operator creates the route within a minute after the CRD
	// is installed.
	ReasonGatewayAPINotInstalled = "GatewayAPINotInstalled"

	// ReasonRouteRejected means that a Gateway rejected the route. The condition Routed has the
	// reason of the Gateway's controller.
	ReasonRouteRejected = "RouteRejected"

	// ReasonVerificationFailed means that the verifier does not receive the declared response.
	ReasonVerificationFailed = "VerificationFailed"
)
