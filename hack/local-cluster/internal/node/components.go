package node

import "path/filepath"

// The name, addresses and paths of the node inside the sandbox.
const (
	Name = "local-cluster"
	// IP is the address of the node on the bridge of the pods.
	IP = "10.244.0.1"

	// BinDir and StateDir are the mount points of the host's directories.
	BinDir   = "/run/cluster/bin"
	StateDir = "/run/cluster/state"

	// Path is the PATH of every component. Debian provides iptables, conntrack and
	// runc; BinDir contains the containerd shim.
	Path = BinDir + ":/usr/sbin:/usr/bin:/sbin:/bin"

	// APIServerAddress and RegistryAddress are the targets of init's forwarders.
	APIServerAddress = "127.0.0.1:6443"
	RegistryAddress  = "127.0.0.1:5000"
)

// Component is a long-running program of the cluster.
type Component struct {
	Name string
	Path string
	Args []string
}

// ServerComponents lists the API server and the components that do not depend on it.
func ServerComponents() []Component {
	return []Component{
		{Name: "registry", Path: "/usr/bin/docker-registry", Args: []string{
			"serve", "/etc/docker/registry/config.yml",
		}},
		{Name: "etcd", Path: binary("etcd"), Args: []string{
			"--data-dir=/run/etcd",
			"--listen-client-urls=http://127.0.0.1:2379",
			"--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380",
			"--unsafe-no-fsync",
		}},
		{Name: "kube-apiserver", Path: binary("kube-apiserver"), Args: apiServerArgs()},
		{Name: "containerd", Path: binary("containerd"), Args: []string{
			"--config=/etc/containerd/config.toml",
		}},
	}
}

// ClientComponents lists the clients of the API server. Some of them exit if the API
// server is not ready within seconds of their start.
func ClientComponents(cgroup string) []Component {
	return []Component{
		{Name: "kube-controller-manager", Path: binary("kube-controller-manager"), Args: []string{
			"--kubeconfig=/etc/kubernetes/controller-manager.conf",
			"--leader-elect=false",
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + pkiDir + "/sa.key",
			"--root-ca-file=" + CACertificate,
			"--cluster-signing-cert-file=" + CACertificate,
			"--cluster-signing-key-file=" + pkiDir + "/ca.key",
			"--allocate-node-cidrs",
			"--cluster-cidr=10.244.0.0/16",
			// The default is in /usr, which the sandbox shares with the host.
			"--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins",
		}},
		{Name: "kube-scheduler", Path: binary("kube-scheduler"), Args: []string{
			"--kubeconfig=/etc/kubernetes/scheduler.conf",
			"--leader-elect=false",
		}},
		{Name: "kubelet", Path: binary("kubelet"), Args: []string{
			"--kubeconfig=/etc/kubernetes/kubelet.conf",
			"--config=/etc/kubernetes/kubelet.yaml",
			"--cgroup-root=/" + cgroup,
			"--hostname-override=" + Name,
			"--node-ip=" + IP,
		}},
		{Name: "kube-proxy", Path: binary("kube-proxy"), Args: []string{
			"--kubeconfig=/etc/kubernetes/proxy.conf",
			"--hostname-override=" + Name,
			"--cluster-cidr=10.244.0.0/16",
			"--proxy-mode=iptables",
			// The limit is a read-only setting of the host.
			"--conntrack-max-per-core=0",
			"--conntrack-min=0",
		}},
	}
}

func apiServerArgs() []string {
	return []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0",
		"--secure-port=6443",
		"--advertise-address=" + IP,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		// OpenShift enables OwnerReferencesPermissionEnforcement, which denies owner
		// references that the operator's role does not permit. With AlwaysPullImages,
		// pods run the current image of a tag that was pushed again.
		"--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement,AlwaysPullImages",

		"--tls-cert-file=" + pkiDir + "/apiserver.crt",
		"--tls-private-key-file=" + pkiDir + "/apiserver.key",
		"--client-ca-file=" + CACertificate,

		"--kubelet-client-certificate=" + pkiDir + "/apiserver-kubelet-client.crt",
		"--kubelet-client-key=" + pkiDir + "/apiserver-kubelet-client.key",
		"--kubelet-preferred-address-types=InternalIP",

		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pkiDir + "/sa.pub",
		"--service-account-signing-key-file=" + pkiDir + "/sa.key",

		// OLM's packageserver is an aggregated API server.
		"--enable-aggregator-routing=true",
		"--requestheader-client-ca-file=" + pkiDir + "/front-proxy-ca.crt",
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pkiDir + "/front-proxy-client.crt",
		"--proxy-client-key-file=" + pkiDir + "/front-proxy-client.key",

		"--audit-policy-file=/etc/kubernetes/audit-policy.yaml",
		"--audit-log-path=" + StateDir + "/logs/audit.log",
		"--audit-log-maxsize=1024",
	}
}

func binary(name string) string { return filepath.Join(BinDir, name) }
