package controller

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

var _ = Describe("The API", func() {
	It("sets the defaults", func() {
		echo := createEcho(newNamespace(), "hello", func(s *echov1.EchoSpec) { s.Page = &echov1.Page{} })
		Expect(echo.Spec.Replicas).To(Equal(int32(1)))
		Expect(echo.Spec.Port).To(Equal(int32(80)))
		Expect(echo.Spec.TargetPort).To(Equal(int32(5678)))
		Expect(echo.Spec.Page.Color).To(Equal("#2196F3"))
	})

	DescribeTable("rejects an invalid Echo with a message that names the field",
		func(name string, spec map[string]any, parts ...string) {
			echo := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
			echo.SetGroupVersionKind(echov1.GroupVersion.WithKind("Echo"))
			echo.SetNamespace("default")
			echo.SetName(name)
			err := admin.Create(ctx, echo)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "error = %v, want Invalid", err)
			for _, part := range parts {
				Expect(err.Error()).To(ContainSubstring(part))
			}
		},
		Entry("a missing message", "bad", map[string]any{}, "spec.message", "Required"),
		Entry("an empty message", "bad", map[string]any{"message": ""}, "spec.message", "at least 1"),
		Entry("a message with NUL", "bad", map[string]any{"message": "a\x00b"}, "spec.message", "NUL"),
		Entry("a message that is too long", "bad", map[string]any{"message": strings.Repeat("é", 16385)}, "spec.message", "16384"),
		Entry("0 replicas", "bad", map[string]any{"message": "m", "replicas": int64(0)}, "spec.replicas", "greater than or equal to 1"),
		Entry("6 replicas", "bad", map[string]any{"message": "m", "replicas": int64(6)}, "spec.replicas", "less than or equal to 5"),
		Entry("replicas as text", "bad", map[string]any{"message": "m", "replicas": "two"}, "spec.replicas", "integer"),
		Entry("port 0", "bad", map[string]any{"message": "m", "port": int64(0)}, "spec.port", "greater than or equal to 1"),
		Entry("port 65536", "bad", map[string]any{"message": "m", "port": int64(65536)}, "spec.port", "65535"),
		Entry("targetPort 0", "bad", map[string]any{"message": "m", "targetPort": int64(0)}, "spec.targetPort"),
		Entry("targetPort 65536", "bad", map[string]any{"message": "m", "targetPort": int64(65536)}, "spec.targetPort"),
		Entry("a language with a space", "bad", map[string]any{"message": "m", "page": map[string]any{"language": "pt BR"}}, "spec.page.language", "[a-zA-Z]{2,8}"),
		Entry("the color red", "bad", map[string]any{"message": "m", "page": map[string]any{"color": "red"}}, "spec.page.color", "#[0-9a-fA-F]{6}"),
		Entry("a title that is too long", "bad", map[string]any{"message": "m", "page": map[string]any{"title": strings.Repeat("t", 254)}}, "spec.page.title", "253"),
		Entry("args as text", "bad", map[string]any{"message": "m", "image": "i", "args": "-v"}, "spec.args", "array"),
		Entry("args with a number", "bad", map[string]any{"message": "m", "image": "i", "args": []any{int64(1)}}, "spec.args[0]", "string"),
		Entry("args without an image", "bad", map[string]any{"message": "m", "args": []any{"-v"}}, "spec", "set image, too"),
		Entry("resource claims", "bad", map[string]any{"message": "m", "resources": map[string]any{"claims": []any{map[string]any{"name": "gpu"}}}}, "spec.resources", "limits and requests"),
		Entry("a name with a dot", "hello.dot", map[string]any{"message": "m"}, "metadata.name", "no dots"),
		Entry("a name that is too long", strings.Repeat("n", 59), map[string]any{"message": "m"}, "metadata.name", "58"),
	)

	It("accepts the longest name and message and the limits of every number", func() {
		createEcho(newNamespace(), strings.Repeat("n", 58), func(s *echov1.EchoSpec) {
			s.Message = strings.Repeat("é", 16384)
			s.Replicas, s.Port, s.TargetPort = 5, 65535, 1
		})
	})

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
