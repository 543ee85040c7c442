package controller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/values"
)

// patchOfApply returns the patch that kubectl apply sends for a manifest that it has applied before.
func patchOfApply(manifest, stored *unstructured.Unstructured) string {
	GinkgoHelper()
	applied, err := json.Marshal(map[string]any{"spec": manifest.Object["spec"]})
	Expect(err).NotTo(HaveOccurred())
	current, err := json.Marshal(map[string]any{"spec": stored.Object["spec"]})
	Expect(err).NotTo(HaveOccurred())
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(applied, applied, current)
	Expect(err).NotTo(HaveOccurred())
	return string(patch)
}

// sampleEntries returns the files of the samples.
func sampleEntries() (entries []TableEntry) {
	for _, pattern := range []string{"*.yaml", "gateway/*.yaml"} {
		files, err := filepath.Glob("../../config/samples/" + pattern)
		if err != nil {
			panic(err) // The patterns are constants.
		}
		for _, file := range files {
			if filepath.Base(file) != "kustomization.yaml" {
				entries = append(entries, Entry(nil, file))
			}
		}
	}
	return entries
}

func readManifest(file string) *unstructured.Unstructured {
	GinkgoHelper()
	text, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	manifest := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal(text, manifest)).To(Succeed())
	return manifest
}

// serverSideApply applies the manifest, and returns the result.
func serverSideApply(manifest *unstructured.Unstructured, options ...client.ApplyOption) *unstructured.Unstructured {
	GinkgoHelper()
	applied := manifest.DeepCopy()
	options = append(options, client.FieldOwner("gitops"), client.ForceOwnership)
	Expect(admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), options...)).To(Succeed())
	return applied
}

var _ = Describe("The API", func() {
	It("sets the defaults", func() {
		echo := createEcho(newNamespace(), "hello", func(s *echov1.EchoSpec) { s.Page = &echov1.Page{} })
		Expect(echo.Spec.Replicas).To(Equal(int32(1)))
		Expect(echo.Spec.Port).To(Equal(int32(80)))
		Expect(echo.Spec.TargetPort).To(BeZero(), "the operator chooses the port of the server")
		Expect(echo.Spec.Page.Color).To(Equal("#2196F3"))
	})

	// kstatus, Flux and Helm regard an object without a status as current.
	It("sets a status of an earlier generation, so that tools wait for an Echo that no operator watches", func() {
		echo := createEcho(newNamespace(), "hello")
		Expect(komega.Get(echo)()).To(Succeed())
		Expect(echo.Status).To(Equal(echov1.EchoStatus{ObservedGeneration: -1}))
	})

	var entries []TableEntry
	for _, c := range values.Cases() {
		entries = append(entries, Entry(c.Name, c))
	}
	DescribeTable("accepts the limits of every field unchanged, and rejects an invalid value with a message that names the field",
		func(c values.Case) {
			echo := c.Echo.DeepCopy()
			echo.SetNamespace("default")
			err := admin.Create(ctx, echo, client.DryRunAll)
			if len(c.Rejection) == 0 {
				Expect(err).NotTo(HaveOccurred())
				Expect(equality.Semantic.DeepDerivative(c.Echo.Object["spec"], echo.Object["spec"])).To(BeTrue(), "stored spec = %v", echo.Object["spec"])
				Expect(patchOfApply(c.Echo, echo)).To(Equal("{}"), "change by kubectl apply of the same manifest")
				return
			}
			Expect(err).To(Satisfy(apierrors.IsInvalid))
			for _, text := range c.Rejection {
				Expect(err).To(MatchError(ContainSubstring(text)))
			}
		},
		entries,
	)

	// A GitOps controller compares the manifest with the Echo at each interval. An autoscaler may have changed the replicas.
	DescribeTable("has nothing to change when a GitOps controller compares a sample again",
		func(file string) {
			manifest := readManifest(file)
			manifest.SetNamespace(newNamespace())
			_, declaresReplicas, err := unstructured.NestedFieldNoCopy(manifest.Object, "spec", "replicas")
			Expect(err).NotTo(HaveOccurred())
			applied := serverSideApply(manifest)
			if !declaresReplicas {
				scaled := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`))
				Expect(admin.Patch(ctx, applied, scaled, client.FieldOwner("autoscaler"))).To(Succeed())
			}
			Expect(serverSideApply(manifest, client.DryRunAll)).To(Equal(applied), "server-side apply, as of Flux")
			Expect(patchOfApply(manifest, applied)).To(Equal("{}"), "three-way merge, as of Argo CD")
		},
		func(file string) string { return filepath.Base(file) },
		sampleEntries(),
	)

	// A client that is not written in Go sends the JSON that its author chooses.
	DescribeTable("rejects a header whose value splits the response, or that HTTP would change",
		func(field, value string) {
			header := map[string]string{"name": "X-A", "value": "b"}
			header[field] = value
			body, err := json.Marshal(map[string]any{
				"apiVersion": echov1.GroupVersion.String(), "kind": "Echo", "metadata": map[string]any{"name": "split"},
				"spec": map[string]any{"message": "m", "headers": []any{header}},
			})
			Expect(err).NotTo(HaveOccurred())
			httpClient, err := rest.HTTPClientFor(adminConfig)
			Expect(err).NotTo(HaveOccurred())
			response, err := httpClient.Post(strings.TrimSuffix(adminConfig.Host, "/")+"/apis/"+echov1.GroupVersion.String()+"/namespaces/default/echoes?dryRun=All",
				"application/json", bytes.NewReader(body))
			Expect(err).NotTo(HaveOccurred())
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.StatusCode).To(Equal(http.StatusUnprocessableEntity), string(text))
			Expect(string(text)).To(ContainSubstring("spec.headers[0]." + field + ": Invalid value"))
		},
		Entry("CR LF in the value", "value", "b\r\nSet-Cookie: c=d"),
		Entry("CR in the value", "value", "b\rc"),
		Entry("LF in the value", "value", "b\nc"),
		Entry("LF at the end of the value", "value", "b\n"),
		Entry("NUL in the value", "value", "b\x00c"),
		Entry("NUL at the end of the value", "value", "b\x00"),
		Entry("tab in the value", "value", "b\tc"),
		Entry("DEL in the value", "value", "b\x7f"),
		Entry("a letter beyond ASCII in the value", "value", "é"),
		Entry("no value", "value", ""),
		Entry("a space before the value", "value", " b"),
		Entry("a space after the value", "value", "b "),
		Entry("CR LF in the name", "name", "X-A: b\r\nX-B"),
		Entry("LF at the end of the name", "name", "X-A\n"),
		Entry("NUL in the name", "name", "X\x00"),
		Entry("a colon in the name", "name", "X:"),
		Entry("a space in the name", "name", "X A"),
	)

	It("passes every message to the server byte for byte", func() {
		startOperator()
		namespace := newNamespace()
		for i, text := range []string{
			`"quoted" 'and' \back`, "two\nlines\n", "--leading", "emoji 😀", "$(HOME) $$ $(ECHO_TEXT) $", strings.Repeat("ü", 16384),
		} {
			echo := createEcho(namespace, fmt.Sprint("m", i), func(s *echov1.EchoSpec) { s.Message = text })
			expectReady(echo)
			Expect(containerOf(echo).Args[0]).To(Equal("-text=" + strings.ReplaceAll(text, "$", "$$")))
		}
	})
})
