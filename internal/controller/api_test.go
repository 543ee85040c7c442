package controller

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/values"
)

var _ = Describe("The API", func() {
	It("sets the defaults", func() {
		echo := createEcho(newNamespace(), "hello", func(s *echov1.EchoSpec) { s.Page = &echov1.Page{} })
		Expect(echo.Spec.Replicas).To(Equal(int32(1)))
		Expect(echo.Spec.Port).To(Equal(int32(80)))
		Expect(echo.Spec.TargetPort).To(Equal(int32(5678)))
		Expect(echo.Spec.Page.Color).To(Equal("#2196F3"))
	})

	var entries []TableEntry
	for _, c := range values.Current.Cases() {
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
				return
			}
			Expect(err).To(Satisfy(apierrors.IsInvalid))
			for _, text := range c.Rejection {
				Expect(err).To(MatchError(ContainSubstring(text)))
			}
		},
		entries,
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
