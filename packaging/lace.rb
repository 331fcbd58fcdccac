# Homebrew's formula for Linux: brew install --HEAD ./packaging/lace.rb
class Lace < Formula
  desc "Run language models"
  homepage "https://lace.invalid/"
  license "MIT"
  head "https://lace.invalid/lace.git", branch: "main"

  depends_on "perl" => :build
  depends_on "pkgconf" => :build
  depends_on "jansson"
  depends_on "jpeg-turbo"
  depends_on "libedit"
  depends_on "libevent"
  depends_on "libpng"
  depends_on :linux
  depends_on "openssl@3"
  depends_on "pcre2"
  depends_on "utf8proc"
  depends_on "webp"

  def install
    # Places inside the formula's own folder; bash and zsh look where brew links them.
    system "make", "NVCC=", "PREFIX=#{prefix}", "install"
  end

  test do
    assert_match "Once upon", shell_output("#{bin}/lace run -p 'Once upon a time' -n 5 --seed 1")
    (testpath/"version.c").write <<~C
      #include <lace.h>
      #include <stdio.h>
      int main(void) { puts(lace_version()); }
    C
    system ENV.cc, "version.c", "-I#{include}", "-L#{lib}", "-llace", "-o", "version"
    assert_match version.to_s, shell_output("./version") unless head?
  end
end
