package node

import "path/filepath"

// What the node is called, and where it finds things inside the jail.
const (
	Name = "local-cluster"
	// IP is the node's address on the bridge of the pods.
	IP = "10.244.0.1"

	// BinDir and StateDir are where the jail mounts the host's directories.
	BinDir   = "/run/cluster/bin"
	StateDir = "/run/cluster/state"

	// Path is the search path of every component: iptables, conntrack and runc
	// are Debian's, the container shim is ours.
	Path = BinDir + ":/usr/sbin:/usr/bin:/sbin:/bin"

	// APIServerAddress and RegistryAddress are what the jail forwards to.
	APIServerAddress = "127.0.0.1:6443"
	RegistryAddress  = "127.0.0.1:5000"
)

// Component is a program that runs as long as the cluster does.
type Component struct {
	Name string
	Path string
	Args []string
}

// Foundation lists what runs before, and without, an API server that is ready.
func Foundation() []Component {
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

// Machinery lists the API server's clients. Some of them give up when it does
// not answer within seconds of their start.
func Machinery(cgroup string) []Component {
	return []Component{
		{Name: "kube-controller-manager", Path: binary("kube-controller-manager"), Args: []string{
			"--kubeconfig=/etc/kubernetes/controller-manager.conf",
			"--leader-elect=false",
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + pkiDir + "/service-account.key",
			"--root-ca-file=" + pkiDir + "/ca.crt",
			"--cluster-signing-cert-file=" + pkiDir + "/ca.crt",
			"--cluster-signing-key-file=" + pkiDir + "/ca.key",
			"--allocate-node-cidrs",
			"--cluster-cidr=10.244.0.0/16",
			// The default lies in /usr, which the jail shares with the host.
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
			// The kernel's limit is the host's, and read-only in here.
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
		// OwnerReferencesPermissionEnforcement is what OpenShift runs with: it
		// refuses owner references that an operator's role does not cover.
		// An image that was pushed again under its old tag must be the one that runs.
		"--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement,AlwaysPullImages",

		"--tls-cert-file=" + pkiDir + "/apiserver.crt",
		"--tls-private-key-file=" + pkiDir + "/apiserver.key",
		"--client-ca-file=" + pkiDir + "/ca.crt",

		"--kubelet-client-certificate=" + pkiDir + "/kubelet-client.crt",
		"--kubelet-client-key=" + pkiDir + "/kubelet-client.key",
		"--kubelet-certificate-authority=" + pkiDir + "/ca.crt",
		"--kubelet-preferred-address-types=InternalIP",

		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pkiDir + "/service-account.pub",
		"--service-account-signing-key-file=" + pkiDir + "/service-account.key",

		// The packageserver of OLM is an aggregated API.
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
