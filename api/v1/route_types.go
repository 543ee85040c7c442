package v1

// Route exposes the Service outside the cluster through Gateways of the Gateway API.
//
// +kubebuilder:validation:XValidation:rule="has(self.parentRefs) || has(self.overrides)",message="parentRefs must be set without overrides",fieldPath=".parentRefs",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!has(self.overrides) || !has(self.parentRefs) && !has(self.hostnames) && (!has(self.paths) || self.paths.all(p, p.value == '/' && (!has(p.type) || p.type == 'PathPrefix')))",message="parentRefs, hostnames and paths must not be set with overrides: they are those of the overridden HTTPRoutes",fieldPath=".overrides"
type Route struct {
	// The Gateways that serve the route, 1 to 4. Two entries for the same Gateway must each have a
	// `sectionName` of their own. Required without `overrides`.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.name == b.name && (has(a.__namespace__) ? a.__namespace__ : '') == (has(b.__namespace__) ? b.__namespace__ : '') && (!has(a.sectionName) || !has(b.sectionName) || a.sectionName == b.sectionName)))",message="parentRefs that name the same Gateway must each have a sectionName of their own"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Gateways"
	ParentRefs []ParentRef `json:"parentRefs,omitempty"`

	// The HTTPRoutes in the namespace of the Echo whose requests the Echo gets, 1 to 8, for example those of an application
	// during maintenance. The operator does not change them: its own HTTPRoute has their Gateways, hostnames and matches, with
	// a higher precedence. They must have the same Gateways and hostnames, and at most 18 matches without a method in all.
	// Deleting the Echo, or this field, gives the requests back.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Overridden HTTPRoutes"
	Overrides []RouteRef `json:"overrides,omitempty"`

	// The hostnames of requests, for example "status.example.com" or "*.example.com": at most 8.
	// When unset, the hostnames of the Gateways' listeners.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Hostnames"
	Hostnames []string `json:"hostnames,omitempty"`

	// The paths of requests, 1 to 8. A request that matches none of them does not reach the Echo.
	// When unset, every path.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:default={{value: "/"}}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Paths"
	Paths []Path `json:"paths,omitempty"`

	// The scheme of the URL in `status.externalURL`: http or https. The listeners of the Gateways
	// decide which schemes they serve.
	//
	// +optional
	// +kubebuilder:default=https
	// +kubebuilder:validation:Enum=http;https
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Scheme",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:http","urn:alm:descriptor:com.tectonic.ui:select:https"}
	Scheme string `json:"scheme,omitempty"`
}

// RouteRef names an HTTPRoute in the namespace of the Echo.
type RouteRef struct {
	// The name of the HTTPRoute.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="HTTPRoute",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Name string `json:"name"`
}

// ParentRef names a Gateway, or some of its listeners.
type ParentRef struct {
	// The name of the Gateway.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Gateway",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Name string `json:"name"`

	// The namespace of the Gateway. When unset, that of the Echo. A listener of the Gateway has to
	// allow routes from the namespace of the Echo.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Gateway namespace",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Namespace string `json:"namespace,omitempty"`

	// The name of a listener. When unset, every listener.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Listener",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	SectionName string `json:"sectionName,omitempty"`

	// The port of the listeners, 1 to 65535. When unset, every port. `status.externalURL` contains
	// the port of the first Gateway.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Listener port",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	Port int32 `json:"port,omitempty"`
}

// Path matches the path of a request.
//
// +kubebuilder:validation:XValidation:rule="!self.value.contains('//') && !self.value.matches('/[.][.]?(/|$)') && !self.value.matches('%2[fF]')",message="value of a path must not contain //, /./, /../ or %2F, and not end with /. or /.."
type Path struct {
	// Exact, or PathPrefix: the path and all paths below it, for example /docs and /docs/a. When unset,
	// PathPrefix.
	//
	// +optional
	// +kubebuilder:validation:Enum=PathPrefix;Exact
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Type of match",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Exact","urn:alm:descriptor:com.tectonic.ui:select:PathPrefix"}
	Type string `json:"type,omitempty"`

	// The path: starts with /, at most 1,024 characters of RFC 3986.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})*$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Path",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Value string `json:"value"`
}
