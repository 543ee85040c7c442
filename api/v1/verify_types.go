package v1

// Verify configures the continuous verification of the response.
//
// +kubebuilder:validation:XValidation:rule="!has(self.timeoutSeconds) || !has(self.periodSeconds) || self.timeoutSeconds <= self.periodSeconds",message="timeoutSeconds must be at most periodSeconds"
type Verify struct {
	// Where the response is requested from: Cluster, from one pod on any node, or EveryNode, from a pod
	// on every node that the pods may run on. An administrator has to allow EveryNode, because it
	// multiplies pods by nodes.
	//
	// +optional
	// +kubebuilder:default=Cluster
	// +kubebuilder:validation:Enum=Cluster;EveryNode
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="From",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Cluster","urn:alm:descriptor:com.tectonic.ui:select:EveryNode"}
	From string `json:"from,omitempty"`

	// The time between two requests, 1 to 300 seconds.
	//
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=300
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Period in seconds",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`

	// How long a request may take, from the look-up of the name to the end of the response, 1 to 60
	// seconds. At most `periodSeconds`.
	//
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Timeout in seconds",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// The number of consecutive failed requests that fails the verification, 1 to 10. Two wrong
	// responses within ten requests fail it, too.
	//
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Failure threshold",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	FailureThreshold int32 `json:"failureThreshold,omitempty"`

	// What is verified: DNS, that the name of the Service resolves to its addresses; Service, that each of these
	// responds; and Route, that the external URL does. Leave Route out where pods cannot resolve or reach that URL.
	// When unset, all that the Echo has.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=DNS;Service;Route
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Layers"
	Layers []string `json:"layers,omitempty"`

	// CPU and memory of each container of the verifier, which has two, or three with the `route` of a
	// hostname. When unset: requests of 5m and 16Mi, limits of 50m and 32Mi.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Resources",xDescriptors="urn:alm:descriptor:com.tectonic.ui:resourceRequirements"
	Resources Resources `json:"resources,omitzero"`
}

// Values of Verify.From.
const (
	VerifyFromCluster   = "Cluster"
	VerifyFromEveryNode = "EveryNode"
)
