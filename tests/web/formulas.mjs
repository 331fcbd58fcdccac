// Formulas as models write them: all of them must be drawn.

export const FORMULAS = String.raw`
a^2 + b^2 = c^2
x_{1,2} = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}
\int_{-\infty}^{\infty} e^{-x^2} \, dx = \sqrt{\pi}
\sum_{n=1}^\infty \frac{1}{n^2} = \frac{\pi^2}{6}
\lim_{h \to 0} \frac{f(x+h) - f(x)}{h} = f'(x)
f''(x) + f^{(3)}(x) = y'_1
e^{i\pi} + 1 = 0
\nabla \cdot \mathbf{E} = \frac{\rho}{\varepsilon_0}, \quad \nabla \times \vec{B} = \mu_0 \vec{J}
\oint_{\partial S} \mathbf{F} \cdot d\mathbf{r} = \iint_S (\nabla \times \mathbf{F}) \cdot d\mathbf{S}
\begin{pmatrix} a & b \\ c & d \end{pmatrix}^{-1} = \frac{1}{ad - bc} \begin{pmatrix} d & -b \\ -c & a \end{pmatrix}
\begin{bmatrix} 1 & 0 & \cdots & 0 \\ 0 & 1 & \cdots & 0 \\ \vdots & \vdots & \ddots & \vdots \\ 0 & 0 & \cdots & 1 \end{bmatrix}
\left[\begin{array}{cc|c} 1 & 0 & 5 \\ \hline 0 & 1 & 3 \end{array}\right]
|x| = \begin{cases} x & \text{if } x \geq 0 \\ -x & \text{otherwise} \end{cases}
\begin{aligned} (a+b)^2 &= (a+b)(a+b) \\[4pt] &= a^2 + 2ab + b^2 \end{aligned}
\begin{align*} x &= 1 & y &= 2 \\ z &= 3 \nonumber \end{align*}
\text{Attention}(Q, K, V) = \operatorname{softmax}\left(\frac{QK^\top}{\sqrt{d_k}}\right) V
\hat{y} = \underset{k}{\arg\max}\; p(y = k \mid \mathbf{x})
\theta^* = \argmin_{\theta} \mathbb{E}_{x \sim p_{\text{data}}} \left[ \mathcal{L}(x; \theta) \right]
\operatorname*{arg\,max}_{w} \log P(w \mid D)
D_{\mathrm{KL}}(P \parallel Q) = \sum_{x \in \mathcal{X}} P(x) \log \frac{P(x)}{Q(x)}
\Pr(A \cap B) = \Pr(A)\Pr(B), \quad A \perp B
\forall \epsilon > 0\ \exists \delta > 0: |x - a| < \delta \implies |f(x) - L| < \epsilon
\mathbb{N} \subset \mathbb{Z} \subset \mathbb{Q} \subset \mathbb{R} \subset \mathbb{C}
\{ x \in \mathbb{R} \mid x^2 < 2 \}
\left\{ \frac{p}{q} \;\middle|\; p, q \in \mathbb{Z},\ q \neq 0 \right\}
a \equiv b \pmod{n}, \quad a \bmod n, \quad \gcd(a, b) = 1
\binom{n}{k} = \frac{n!}{k!\,(n-k)!}
\prod_{i=1}^{n} x_i \leq \left( \frac{1}{n} \sum_{i=1}^{n} x_i \right)^n
\sqrt[3]{x^2 + 1} \approx 1.26, \quad \sqrt2 \approx 1.414{,}213
\overline{z_1 + z_2} = \bar{z}_1 + \bar{z}_2, \quad \widehat{AB}, \quad \tilde{f}, \quad \dot{x}, \quad \ddot{x}
\underbrace{1 + 1 + \cdots + 1}_{n \text{ times}} = n, \quad \overbrace{a + b}^{\text{sum}}
\ce{} \text{H}_2\text{O} \xrightarrow{\Delta} \text{H}_2 + \tfrac12 \text{O}_2
A \xrightarrow[\text{below}]{\text{above}} B
\left. \frac{\partial f}{\partial x} \right|_{x=0}, \quad \left\lVert v \right\rVert_2, \quad \lfloor x \rfloor, \quad \lceil y \rceil, \quad \langle u, v \rangle
\big( \Big( \bigg( \Bigg( x \Bigg) \bigg) \Big) \big)
\boxed{x = 42}
\textcolor{red}{x} + \color{blue}{y}
\sum_{\substack{1 \le i \le n \\ i \ne j}} a_{ij}
\dfrac{1}{1 + \cfrac{1}{1 + \cdots}}
{n \choose k} = {a \over b}
\mathrm{d}x, \mathsf{T}, \mathtt{code}, \mathfrak{g}, \mathscr{L}, \mathit{diff}, \boldsymbol{\beta}, \bm{x}
\Gamma(z) = \int_0^\infty t^{z-1} e^{-t}\,dt, \qquad \Re(z) > 0
\alpha\beta\gamma\delta\epsilon\varepsilon\zeta\eta\theta\vartheta\iota\kappa\lambda\mu\nu\xi\pi\rho\sigma\tau\upsilon\phi\varphi\chi\psi\omega
\sin^2\theta + \cos^2\theta = 1, \quad \tan x, \quad \ln(1+x), \quad \log_2 n, \quad \exp(-x)
O(n \log n) \subseteq o(n^2), \quad \Theta(n), \quad \Omega(1)
180^\circ = \pi \text{ rad}, \quad 25\,^\circ\text{C}, \quad 50\%, \quad \$5
\hbar \frac{\partial}{\partial t} \Psi = \hat{H} \Psi, \quad \ell, \quad \aleph_0
i\hbar\frac{\partial}{\partial t}|\psi\rangle = \hat{H}|\psi\rangle, \quad \langle\phi|\psi\rangle
p \land q \lor \lnot r \Rightarrow s \iff t \vdash u \models v
A \setminus B \cup \emptyset, \quad A \times B, \quad x \notin A, \quad A \not\subset B
x \mapsto x^2, \quad f: X \to Y, \quad a \rightarrow b \leftarrow c \leftrightarrow d
{}^{14}_{6}\mathrm{C}, \quad x^{2^{n}}, \quad x_{i_j}
\displaystyle \sum_{i} x_i, \quad \textstyle \sum_i x_i
\phantom{x} y \quad \hspace{1em} z \! w
\begin{vmatrix} a & b \\ c & d \end{vmatrix} = ad - bc
\begin{gathered} a = b \\ c = d \end{gathered}
\begin{equation} E = mc^2 \tag{1} \end{equation}
\begin{split} a &= b + c \\ &= d \end{split}
a = b \\ c = d
\text{if $x > 0$ and 100\% sure}
\limsup_{n \to \infty} a_n, \quad \sup_{x \in A} f(x), \quad \max_{i} x_i, \quad \det A
\int\limits_0^1 x\,dx, \quad \sum\nolimits_i a_i, \quad \iiint_V dV
\left(\begin{smallmatrix} a & b \\ c & d \end{smallmatrix}\right)
\mathbf{W}^{(l)} \in \mathbb{R}^{d_{\text{model}} \times d_{ff}}
\frac12, \frac{a}b, x^\frac{1}{2}, x^\mathrm{T}, \sqrt{\frac{a}{b}}
\vec{AB} \perp \overrightarrow{CD}, \quad \angle ABC = 90^\circ, \quad \triangle ABC \cong \triangle DEF
\cancel{x} + \stackrel{!}{=} + \overset{\text{def}}{=}
\mathbf{\Sigma} = \mathbf{U} \boldsymbol{\Lambda} \mathbf{U}^{\mathsf{T}}
速度 = \frac{距离}{时间}, \quad \text{速度}
`.trim().split('\n').map((line) => line.replace('\\ce{} ', ''));
