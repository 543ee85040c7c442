package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EchoSpec is the desired state of an Echo: the message and how it is served.
//
// +kubebuilder:validation:XValidation:rule="has(self.message) || has(self.image)",message="message is required without image: it is the response of the default server",fieldPath=".message",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="has(self.image) || (!has(self.command) || size(self.command) == 0) && (!has(self.args) || size(self.args) == 0)",message="command and args are for your own image: set image, too"
// +kubebuilder:validation:XValidation:rule="has(self.image) || !has(self.readinessPath)",message="readinessPath is for your own image: set image, too",fieldPath=".readinessPath",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.image) || !has(self.statusCode)",message="statusCode must be unset with image: your own image chooses its status code",fieldPath=".statusCode",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.image) || !has(self.headers) || size(self.headers) == 0",message="headers must be empty or unset with image: your own image sets its headers",fieldPath=".headers",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.image) || !has(self.page)",message="page must be unset with image: your own image writes its pages",fieldPath=".page",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.statusCode) || !(self.statusCode in [301, 302, 303, 307, 308]) || has(self.headers) && self.headers.exists(h, h.name.lowerAscii() == 'location')",message="statusCode 301, 302, 303, 307 or 308 requires the header Location: add it to headers, with the URL to which the response redirects"
// +kubebuilder:validation:XValidation:rule="!has(self.statusCode) || !(self.statusCode == 401) || has(self.headers) && self.headers.exists(h, h.name.lowerAscii() == 'www-authenticate')",message="statusCode 401 requires the header WWW-Authenticate: add it to headers, with a challenge such as Basic realm=\"internal\""
// +kubebuilder:validation:XValidation:rule="!has(self.statusCode) || !(self.statusCode == 405) || has(self.headers) && self.headers.exists(h, h.name.lowerAscii() == 'allow')",message="statusCode 405 requires the header Allow: add it to headers, with the allowed methods, for example GET, HEAD"
// +kubebuilder:validation:XValidation:rule="!has(self.statusCode) || !(self.statusCode == 407) || has(self.headers) && self.headers.exists(h, h.name.lowerAscii() == 'proxy-authenticate')",message="statusCode 407 requires the header Proxy-Authenticate: add it to headers, with a challenge such as Basic realm=\"proxy\""
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !has(self.verify.layers) || self.verify.layers.exists(l, l != 'Route') || has(self.route) && has(self.route.hostnames) && self.route.hostnames.size() > 0 && !self.route.hostnames[0].startsWith('*')",message="layers must have DNS or Service, too, without a route whose first hostname is known: add one, or set the hostname",fieldPath=".verify.layers"
type EchoSpec struct {
	// The text that the endpoint returns for every request: the body is the message, byte for byte, and
	// one newline. 1 to 16,384 characters, no NUL. Required, except with `image`, which gets it in the
	// environment variable ECHO_TEXT.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="!self.contains('\\u0000')",message="message must not contain the NUL character"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Message",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Message string `json:"message,omitempty"`

	// The HTTP status code of the response, 200 to 599 except 206 and 426. When unset, 200. A response with
	// the code 204, 205 or 304 has no body, so it does not contain the message. Some codes require a header in
	// `headers`: 301, 302, 303, 307 and 308 Location, 401 WWW-Authenticate, 405 Allow, 407 Proxy-Authenticate.
	// Not with `image`: your own image chooses its status code.
	//
	// +optional
	// +kubebuilder:validation:Minimum=200
	// +kubebuilder:validation:Maximum=599
	// +kubebuilder:validation:XValidation:rule="!(self in [206, 426])",message="statusCode must not be 206 or 426: such a response depends on the request, which a fixed response cannot"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Status code",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	StatusCode int32 `json:"statusCode,omitempty"`

	// Headers of each response, for example Location or Cache-Control: at most 16. Names are
	// case-insensitive. Content-Type replaces the default, which is text/plain; charset=utf-8, or with
	// `page` text/html; charset=utf-8. Cache-Control replaces no-store, the default of a `page` with the
	// status code 503. Not with `image`: your own image sets its headers.
	// When unset, a response has only the headers that the server sets itself.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.name.lowerAscii() == b.name.lowerAscii()))",message="headers must not repeat a name: names are case-insensitive"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Headers"
	Headers []Header `json:"headers,omitempty"`

	// The number of pods that serve the message, 1 to 5. The maximum bounds what a user who may
	// create Echoes can start; for more load, raise `resources`. `kubectl scale` and a
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

	// The port that the server listens on inside its pod, 1 to 65535. When unset, 5678, or with `image` the
	// value of `port`. A server without root may listen on ports below 1024, too.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Target port",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	TargetPort int32 `json:"targetPort,omitempty"`

	// Returns an HTML page that shows the message, instead of plain text. URLs in the message are links.
	// The page escapes markup in the message and the title. Not with `image`.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Page"
	Page *Page `json:"page,omitempty"`

	// Your own server image. It runs as it is, unless `command` or `args` replace its entrypoint or its
	// arguments, and responds on `targetPort`. Its user is not root, and it gets the environment variables
	// ECHO_TEXT, the message, and ECHO_PORT, the target port. When unset, the operator runs its default
	// server.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Image",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Image string `json:"image,omitempty"`

	// Replaces the entrypoint of `image`. $(ECHO_TEXT) and $(ECHO_PORT) are the message and the target port.
	// At most 64 items of at most 16,384 characters, and 32,768 characters in total. When unset, the
	// entrypoint of the image.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="self.map(item, size(item)).sum() <= 32768",message="command must have at most 32,768 characters in total"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Command",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Command []string `json:"command,omitempty"`

	// Replaces the arguments of `image`. See `command`, also for the limits. When unset, the arguments of
	// the image, or none with `command`.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="self.map(item, size(item)).sum() <= 32768",message="args must have at most 32,768 characters in total"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Arguments",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Args []string `json:"args,omitempty"`

	// The path of HTTP probes of `image`, for example "/healthz". The server has five minutes to start, and
	// must respond to it on `targetPort` with a status code from 200 to 399. The path starts with / and has up
	// to 1,024 printable ASCII characters without spaces. When unset, the pods of an own image have no
	// probes: the program does not have to listen, and a pod counts as available after it has run for
	// five seconds.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[!-~]*$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Readiness path",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	ReadinessPath string `json:"readinessPath,omitempty"`

	// CPU and memory of the server's container. When unset: requests of 10m and 16Mi,
	// limits of 100m and 128Mi.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Resources",xDescriptors="urn:alm:descriptor:com.tectonic.ui:resourceRequirements"
	Resources Resources `json:"resources,omitzero"`

	// Exposes the Service outside the cluster through Gateways of the Gateway API, with an
	// HTTPRoute. The cluster must serve HTTPRoute in gateway.networking.k8s.io/v1.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Route"
	Route *Route `json:"route,omitempty"`

	// Requests the response continuously as a client does, by the name of the Service, by its addresses
	// and, with `route`, by the external URL, and compares status code, `headers` and body with the
	// declared ones. Your own image has to respond with a status code from 200 to 299. The condition
	// Verified reports the result. When unset, the operator runs no verifier.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Verification"
	Verify *Verify `json:"verify,omitempty"`

	// Labels and annotations of every object of the Echo: Service, Deployment, PodDisruptionBudget, HTTPRoute, the
	// verifier, and the pods, for example for a policy that requires them or for a controller that reads
	// annotations. A change restarts the pods. What `pod` declares for a key counts for the server's pods.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Inherited metadata"
	InheritedMetadata *InheritedMetadata `json:"inheritedMetadata,omitempty"`

	// How the Service is reachable from outside the cluster without a Gateway. When unset, it is not.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Service"
	Service *Service `json:"service,omitempty"`

	// Where and how the pods run, also those of `verify`. A change restarts the pods. When unset, the
	// pods run on any Linux node that they tolerate.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Pod settings"
	Pod *PodSettings `json:"pod,omitempty"`
}

// InheritedMetadata is metadata of every object of an Echo. Entries of other writers stay.
type InheritedMetadata struct {
	// Labels of every object and pod.
	//
	// +optional
	// +mapType=granular
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Inherited labels"
	Labels Labels `json:"labels,omitempty"`

	// Annotations of every object and pod.
	//
	// +optional
	// +mapType=granular
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Inherited annotations"
	Annotations Annotations `json:"annotations,omitempty"`
}

// Service configures the Service.
type Service struct {
	// ClusterIP; NodePort, which opens a port on every node; or LoadBalancer, for which the cluster orders an address.
	// Ready does not wait for that address. When unset, ClusterIP.
	//
	// +optional
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Type of the Service",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:ClusterIP","urn:alm:descriptor:com.tectonic.ui:select:NodePort","urn:alm:descriptor:com.tectonic.ui:select:LoadBalancer"}
	Type corev1.ServiceType `json:"type,omitempty"`
}

// Header is a header of the response.
type Header struct {
	// The name of the header: a token of 1 to 63 letters, digits and the symbols of RFC 9110. The server sets
	// Connection, Content-Length, Date, Keep-Alive, Trailer, Transfer-Encoding and Upgrade itself.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$`
	// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['connection', 'content-length', 'date', 'keep-alive', 'trailer', 'transfer-encoding', 'upgrade'])",message="the server sets Connection, Content-Length, Date, Keep-Alive, Trailer, Transfer-Encoding and Upgrade itself: remove the header"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Header",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Name string `json:"name"`

	// The value of the header, byte for byte: 1 to 1,024 characters of printable ASCII, without spaces at its
	// ends, which HTTP removes.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[!-~]([ -~]*[!-~])?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Header value",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Value string `json:"value"`
}

// Page configures the HTML page.
type Page struct {
	// The title of the page, 1 to 253 characters. When unset, the name of the Echo.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Title",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Title string `json:"title,omitempty"`

	// The language of the title and the message, for example "vi" or "pt-BR" (BCP 47), for
	// screen readers, translators and the direction of writing. When unset, the page has no language
	// attribute, and each line has the direction of its first letter.
	//
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=35
	// +kubebuilder:validation:Pattern=`^[a-zA-Z]{2,8}(-[a-zA-Z0-9]{1,8})*$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Language",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Language string `json:"language,omitempty"`

	// The theme color of the page: # and six hexadecimal digits, for example "#2196F3".
	//
	// +optional
	// +kubebuilder:default="#2196F3"
	// +kubebuilder:validation:Pattern=`^#[0-9a-fA-F]{6}$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Color",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Color string `json:"color,omitempty"`
}

// Resources are what a container may use, and what the scheduler reserves for it.
type Resources struct {
	// The most that the container may use, by resource, for example "memory: 64Mi".
	//
	// +optional
	Limits ResourceList `json:"limits,omitempty"`

	// What the scheduler reserves for the container, by resource. When unset, the limit.
	//
	// +optional
	Requests ResourceList `json:"requests,omitempty"`
}

// ResourceList contains quantities by the name of their resource, as in a Pod.
//
// +kubebuilder:validation:MaxProperties=8
// +kubebuilder:validation:XValidation:rule="self.all(name, type(self[name]) == int || size(self[name]) <= 20 && !self[name].contains('e') && (!self[name].contains('E') || self[name].endsWith('E') || self[name].endsWith('Ei')))",message="a quantity has at most 20 characters and no exponent: write 129M, not 129e6"
// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 317)",message="the name of a resource has at most 317 characters"
type ResourceList map[corev1.ResourceName]resource.Quantity

// EchoStatus is the observed state of an Echo.
type EchoStatus struct {
	// The conditions Ready (the summary), Available, Progressing, Degraded and Overridden. With
	// `route`, also Routed. With `verify`, also Verified. While a failure lasts, also Stalled.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The beginning of the message, for the table of kubectl: its first line, at most 40 characters, with an
	// ellipsis where it is cut.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=40
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Preview",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Preview string `json:"preview,omitempty"`

	// The number of ready pods and of desired pods, for example "2/2".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Ready pods",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Ready string `json:"ready,omitempty"`

	// The number of pods, old and new.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Pods"
	Replicas int32 `json:"replicas,omitempty"`

	// The number of ready pods, old and new.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Ready replicas"
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// The number of available pods.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Available pods"
	AvailableReplicas int32 `json:"availableReplicas,omitempty"`

	// The label selector of the pods, in the format that the scale subresource requires.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Selector",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Selector string `json:"selector,omitempty"`

	// The URL of the Service inside the cluster.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="URL",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	URL string `json:"url,omitempty"`

	// The URL outside the cluster, with `route`: its scheme, its first hostname, the port of its
	// first Gateway and its first path. Empty if there is no hostname, or the first has a wildcard.
	// The condition Routed reports whether the Gateways accepted the route.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="External URL",xDescriptors="urn:alm:descriptor:org.w3:link"
	ExternalURL string `json:"externalURL,omitempty"`

	// The metadata.generation that the rest of the status describes: -1 until the operator first reconciles
	// the Echo, so that tools wait for it.
	//
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The children whose fields admission changed, where the operator accepted the result. The
	// operator does not write such a child again until its desired state or the accepted values
	// change, even after a restart.
	//
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Overridden children"
	Overridden []OverriddenChild `json:"overridden,omitempty"`
}

// OverriddenChild names the fields of a child that admission changed.
type OverriddenChild struct {
	// The kind of the child, for example "Deployment". That of the verifier is "VerifierDeployment" or
	// "VerifierDaemonSet".
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// The changed fields, for example "spec.template.spec.containers[0].image": the first 16.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Fields []string `json:"fields,omitempty"`

	// A hash of the declared and the accepted values of all changed fields: 16 hexadecimal
	// digits.
	//
	// +optional
	// +kubebuilder:validation:MinLength=16
	// +kubebuilder:validation:MaxLength=16
	Hash string `json:"hash,omitempty"`
}

// Echo declares an HTTP endpoint that returns a fixed message. For each Echo, the operator
// manages a Deployment, a Service, with more than one replica a PodDisruptionBudget, and with
// `route` an HTTPRoute. Each is named echo-<name of the Echo>. With `verify`, it also manages the
// Deployment or the DaemonSet verify-<name of the Echo>.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=echoes,singular=echo,shortName=ec
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="MESSAGE",type=string,JSONPath=`.status.preview`
// +kubebuilder:printcolumn:name="REPLICAS",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="READY",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="REASON",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="VERIFIED",type=string,JSONPath=`.status.conditions[?(@.type=="Verified")].status`,priority=1
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`,priority=1
// +kubebuilder:printcolumn:name="EXTERNAL-URL",type=string,JSONPath=`.status.externalURL`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,54}[a-z0-9])?$')",message="metadata.name becomes a label of the verifier, verify-<name>: at most 56 lower-case letters, digits and hyphens, no dots, with a letter or digit at both ends"
// +operator-sdk:csv:customresourcedefinitions:displayName="Echo",resources={{Deployment,v1,""},{Service,v1,""},{PodDisruptionBudget,v1,""},{HTTPRoute,v1,""},{DaemonSet,v1,""},{Pod,v1,""},{Event,v1,""}}
type Echo struct {
	metav1.TypeMeta `json:",inline"`

	// The metadata of every Kubernetes object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// The desired state.
	// +required
	Spec EchoSpec `json:"spec"`

	// The observed state.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
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
