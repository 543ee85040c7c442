package v1

import corev1 "k8s.io/api/core/v1"

// PodSettings configure where and how the pods of an Echo run. Entries that admission or another
// client adds to the pods, beside these, stay.
type PodSettings struct {
	// Labels that a node must have to run the pods. The pods always require the label
	// kubernetes.io/os=linux. At most 16.
	//
	// +optional
	// +mapType=granular
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.indexOf('/') <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="nodeSelector has an invalid key: a key is a name of at most 63 letters, digits, hyphens, underscores and dots, optionally after a lower-case DNS name and a slash"
	// +kubebuilder:validation:XValidation:rule="!('kubernetes.io/os' in self) || self['kubernetes.io/os'] == 'linux'",message="kubernetes.io/os must be linux or unset: the servers run on Linux"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Node selector",xDescriptors="urn:alm:descriptor:com.tectonic.ui:selector:core:v1:Node"
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// Taints of nodes that the pods tolerate. At most 16.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, (!has(t.key) || size(t.key) <= 317) && (!has(t.value) || size(t.value) <= 63))",message="a toleration has a key of at most 317 characters and a value of at most 63"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in ['', 'Exists', 'Equal', 'Lt', 'Gt'])",message="the operator of a toleration is Equal, Exists, Lt or Gt"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="the effect of a toleration is NoSchedule, PreferNoSchedule or NoExecute; unset, it is every effect"
	// +kubebuilder:validation:XValidation:rule="self.all(t, has(t.key) && t.key != '' || has(t.operator) && t.operator == 'Exists')",message="a toleration without a key has the operator Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value) || t.value == '')",message="a toleration with the operator Exists has no value"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.tolerationSeconds) || has(t.effect) && t.effect == 'NoExecute')",message="a toleration with tolerationSeconds has the effect NoExecute"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Tolerations"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// The name of a PriorityClass. If the class does not exist, the API server rejects the pods.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Priority class",xDescriptors="urn:alm:descriptor:io.kubernetes:PriorityClass"
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Secrets in the namespace of the Echo with credentials for the registry of the image. They
	// replace those of the namespace's default service account. At most 4.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=4
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image pull secrets"
	ImagePullSecrets []SecretReference `json:"imagePullSecrets,omitempty"`

	// Labels of the server's pods.
	//
	// +optional
	// +mapType=granular
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Pod labels"
	Labels Labels `json:"labels,omitempty"`

	// Annotations of the server's pods.
	//
	// +optional
	// +mapType=granular
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Pod annotations"
	Annotations Annotations `json:"annotations,omitempty"`

	// The number of the user that runs the containers of all pods: 1 to 2147483647. Set it for an image whose
	// user is root, or has a name instead of a number, or for a policy that requires it. When unset, the image or
	// the cluster chooses the user; OpenShift rejects a user outside the range of the namespace.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="User ID",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	RunAsUser int64 `json:"runAsUser,omitempty"`
}

// SecretReference names a Secret in the namespace of the Echo.
type SecretReference struct {
	// The name of the Secret: 1 to 253 lower-case letters, digits, hyphens and dots.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Secret",xDescriptors="urn:alm:descriptor:io.kubernetes:Secret"
	Name string `json:"name"`
}

// Labels are labels by their key. Reserved are the prefix kkloud.io/, and the keys that the operator or Kubernetes sets:
// app.kubernetes.io/name, instance, component and managed-by, and the hashes of pod templates. At most 16.
//
// +kubebuilder:validation:MaxProperties=16
// +kubebuilder:validation:XValidation:rule="self.all(k, k.indexOf('/') <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="labels has an invalid key: a key is a name of at most 63 letters, digits, hyphens, underscores and dots, optionally after a lower-case DNS name and a slash"
// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.matches('^(kkloud[.]io/.*|app[.]kubernetes[.]io/(name|instance|component|managed-by)|pod-template-hash|pod-template-generation|controller-revision-hash)$'))",message="labels has a key that is reserved",messageExpression="'labels has a key that is reserved for Kubernetes or the operator: ' + self.filter(k, k.matches('^(kkloud[.]io/.*|app[.]kubernetes[.]io/(name|instance|component|managed-by)|pod-template-hash|pod-template-generation|controller-revision-hash)$'))[0]"
type Labels map[string]LabelValue

// Annotations are annotations by their key. Reserved are the prefix kkloud.io/, and what Kubernetes sets on workloads or
// reads as their security settings: deployment.kubernetes.io/, container.apparmor.security.beta.kubernetes.io/,
// deprecated.daemonset.template.generation and kubectl.kubernetes.io/last-applied-configuration. At most 16, with values
// of at most 4,096 characters in total.
//
// +kubebuilder:validation:MaxProperties=16
// +kubebuilder:validation:XValidation:rule="self.all(k, k.indexOf('/') <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="annotations has an invalid key: a key is a name of at most 63 letters, digits, hyphens, underscores and dots, optionally after a lower-case DNS name and a slash"
// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.matches('^(kkloud[.]io/.*|deployment[.]kubernetes[.]io/.*|container[.]apparmor[.]security[.]beta[.]kubernetes[.]io/.*|deprecated[.]daemonset[.]template[.]generation|kubectl[.]kubernetes[.]io/last-applied-configuration)$'))",message="annotations has a key that is reserved",messageExpression="'annotations has a key that is reserved for Kubernetes or the operator: ' + self.filter(k, k.matches('^(kkloud[.]io/.*|deployment[.]kubernetes[.]io/.*|container[.]apparmor[.]security[.]beta[.]kubernetes[.]io/.*|deprecated[.]daemonset[.]template[.]generation|kubectl[.]kubernetes[.]io/last-applied-configuration)$'))[0]"
// +kubebuilder:validation:XValidation:rule="self.map(k, size(self[k])).sum() <= 4096",message="annotations must have values of at most 4,096 characters in total"
type Annotations map[string]AnnotationValue

// LabelValue is the value of a label: at most 63 letters, digits, hyphens, underscores and dots, with
// a letter or a digit at both ends, or empty.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
type LabelValue string

// AnnotationValue is the value of an annotation: at most 4,096 characters.
//
// +kubebuilder:validation:MaxLength=4096
type AnnotationValue string
