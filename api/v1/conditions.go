package v1

// Condition types of an Echo. Types and reasons are part of the API: scripts and
// alerts may rely on them.
const (
	// ConditionReady is the summary: True only when the newest spec is rolled out
	// completely and its endpoint serves. Its reason repeats the cause when it is not.
	ConditionReady = "Ready"

	// ConditionAvailable is True while at least one pod can answer through the Service,
	// if need be with an earlier spec.
	ConditionAvailable = "Available"

	// ConditionProgressing is True while the newest spec is being rolled out.
	ConditionProgressing = "Progressing"

	// ConditionDegraded is True when something is wrong that waiting alone may not cure;
	// its message carries the words of the component that refused.
	ConditionDegraded = "Degraded"
)

// Reasons of conditions that report no failure.
const (
	// ReasonReady: the newest spec is rolled out and every wanted pod is available.
	ReasonReady = "Ready"

	// ReasonServing: at least one pod is available behind the Service.
	ReasonServing = "Serving"

	// ReasonNotServing: no pod is available, or the Service is not in place.
	ReasonNotServing = "NotServing"

	// ReasonRollingOut: pods of the newest spec are being started or old ones stopped.
	ReasonRollingOut = "RollingOut"

	// ReasonRolledOut: every pod runs the newest spec.
	ReasonRolledOut = "RolledOut"

	// ReasonPodsNotReady: the newest spec is rolled out, yet fewer pods than wanted are available.
	ReasonPodsNotReady = "PodsNotReady"

	// ReasonAsExpected: nothing is wrong.
	ReasonAsExpected = "AsExpected"
)

// Reasons of failures, in Degraded and repeated in Ready, gravest first.
const (
	// ReasonConflict: an object of the child's name exists and belongs to somebody else.
	// It is left alone; the Echo goes on by itself within a minute of its removal.
	ReasonConflict = "Conflict"

	// ReasonRejected: the API server refuses a child, or stores another one than was written:
	// quota, admission policy, permission, validation.
	ReasonRejected = "Rejected"

	// ReasonPodsRejected: the API server refuses the pods: quota, LimitRange, Pod Security, admission policy.
	ReasonPodsRejected = "PodsRejected"

	// ReasonImagePullFailed: the server image cannot be pulled.
	ReasonImagePullFailed = "ImagePullFailed"

	// ReasonContainerCreateFailed: the container cannot be created from its image.
	ReasonContainerCreateFailed = "ContainerCreateFailed"

	// ReasonCrashLooping: the server starts and stops again and again.
	ReasonCrashLooping = "CrashLooping"

	// ReasonUnschedulable: no node can take the pods.
	ReasonUnschedulable = "Unschedulable"

	// ReasonProgressDeadlineExceeded: the rollout made no progress for too long.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
)
