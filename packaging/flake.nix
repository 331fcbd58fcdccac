# lace for Nix: nix run ./packaging, or nix build ./packaging#lace
{
  description = "lace runs language models";
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = f: nixpkgs.lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: rec {
        lace = pkgs.stdenv.mkDerivation {
          pname = "lace";
          version = "0.1.0";
          src = ./..;
          nativeBuildInputs = [ pkgs.pkg-config pkgs.perl ];
          buildInputs = [ pkgs.pcre2 pkgs.utf8proc pkgs.jansson pkgs.libevent pkgs.openssl pkgs.libedit
            pkgs.libjpeg pkgs.libpng pkgs.libwebp ];
          postPatch = "patchShebangs scripts";
          makeFlags = [ "NVCC=" "PREFIX=$(out)" ];
          enableParallelBuilding = true;
          doInstallCheck = true;
          installCheckPhase = "$out/bin/lace run -p 'Once upon a time' -n 5 --seed 1";
        };
        default = lace;
      });
      devShells = each (pkgs: {
        default = pkgs.mkShell { inputsFrom = [ self.packages.${pkgs.system}.lace ]; };
      });
    };
}
