package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EchoSpec is what the user wants: the message, and how it is served.
//
// +kubebuilder:validation:XValidation:rule="has(self.image) || !(has(self.command) || has(self.args))",message="command and args are for a server of your own: set image, too"
type EchoSpec struct {
	// The text that the endpoint answers to every request, byte for byte; the default
	// server ends its answer with one newline. 1 to 16,384 characters, no NUL.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="!self.contains('\\u0000')",message="message must not contain the NUL character"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Message",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Message string `json:"message"`

	// How many pods serve the message, 1 to 5. `kubectl scale` and a
	// HorizontalPodAutoscaler that targets the Echo set this field.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Replicas",xDescriptors="urn:alm:descriptor:com.tectonic.ui:podCount"
	Replicas int32 `json:"replicas,omitempty"`

	// The port of the Service, 1 to 65535.
	//
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Port",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	Port int32 `json:"port,omitempty"`

	// The port that the server listens on inside its pod, 1 to 65535.
	//
	// +optional
	// +kubebuilder:default=5678
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Target port",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	TargetPort int32 `json:"targetPort,omitempty"`

	// Answer with an HTML page that shows the message, instead of with plain text.
	// Markup in the message or the title is shown, not interpreted.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Page"
	Page *Page `json:"page,omitempty"`

	// Another server image. By itself it must understand the arguments of http-echo
	// (a mirror or a build of your own); with command or args it can be any server that
	// runs without root on a read-only root file system; /tmp can be written.
	// When unset, the operator's own default image is used.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Image string `json:"image,omitempty"`

	// Replaces the entrypoint of `image`, and the default arguments. The container also
	// gets the environment variables ECHO_TEXT and ECHO_PORT, which can be used here as
	// $(ECHO_TEXT) and $(ECHO_PORT). As such a program need not listen on targetPort, its
	// pods have no probes: they count as available once they have run for five seconds.
	//
	// +optional
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Command",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Command []string `json:"command,omitempty"`

	// Replaces the default arguments. See `command`.
	//
	// +optional
	// +listType=atomic
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Arguments",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Args []string `json:"args,omitempty"`

	// CPU and memory of the server's container. When unset: requests of 10m and 16Mi,
	// limits of 100m and 64Mi.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.claims)",message="claims are not supported: set limits and requests"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Resources",xDescriptors="urn:alm:descriptor:com.tectonic.ui:resourceRequirements"
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
}

// Page is the look of the HTML page.
type Page struct {
	// The page's title, up to 253 characters. When unset, the Echo's name.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Title",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Title string `json:"title,omitempty"`

	// The language of title and message, as in "vi" or "pt-BR" (BCP 47), for screen readers
	// and translators. When unset, the page names none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=35
	// +kubebuilder:validation:Pattern=`^[a-zA-Z]{2,8}(-[a-zA-Z0-9]{1,8})*$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Language",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Language string `json:"language,omitempty"`

	// The page's theme colour: # and six hexadecimal digits, as in "#2196F3".
	//
	// +optional
	// +kubebuilder:default="#2196F3"
	// +kubebuilder:validation:Pattern=`^#[0-9a-fA-F]{6}$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Colour",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Color string `json:"color,omitempty"`
}

// EchoStatus is what is true right now, as the operator observed it.
type EchoStatus struct {
	// Ready pods and wanted pods, as in "2/2".
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Ready pods",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Ready string `json:"ready,omitempty"`

	// How many pods exist, old and new ones.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Pods"
	Replicas int32 `json:"replicas,omitempty"`

	// How many pods can serve.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Available pods"
	AvailableReplicas int32 `json:"availableReplicas,omitempty"`

	// The label selector of the pods, in the form that the scale subresource asks for.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Selector",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Selector string `json:"selector,omitempty"`

	// The URL of the Service inside the cluster.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="URL",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	URL string `json:"url,omitempty"`

	// The metadata.generation that the rest of the status speaks of.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Ready (the summary), Available, Progressing and Degraded.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Echo declares an HTTP endpoint that answers with a message. The operator keeps a
// Deployment, a Service and, with more than one replica, a PodDisruptionBudget for it,
// each named echo-<name of the Echo>.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=echoes,singular=echo,shortName=ec,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="MESSAGE",type=string,JSONPath=`.spec.message`
// +kubebuilder:printcolumn:name="REPLICAS",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="READY",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`,priority=1
// +kubebuilder:printcolumn:name="REASON",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,56}[a-z0-9])?$')",message="metadata.name becomes the Service name echo-<name>: at most 58 lower-case letters, digits and hyphens, no dots, with a letter or digit at both ends"
// +operator-sdk:csv:customresourcedefinitions:displayName="Echo",resources={{Deployment,v1,""},{Service,v1,""},{PodDisruptionBudget,v1,""},{Event,v1,""}}
type Echo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// What is wanted.
	// +required
	Spec EchoSpec `json:"spec"`

	// What is.
	// +optional
	Status EchoStatus `json:"status,omitzero"`
}

// EchoList is a list of Echoes.
//
// +kubebuilder:object:root=true
type EchoList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Echo `json:"items"`
}
