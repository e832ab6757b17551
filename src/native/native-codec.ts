import type { ByteCodec } from "../connection/byte-codec.ts";
import type { NativeAddon } from "./addon.ts";

/** The byte codec of the addon. */
export function nativeCodec(native: NativeAddon): ByteCodec {
  return {
    base64Encode: native.base64Encode,
    unmask: native.unmask,
    parseLarge: async (message) => (await import("./large-messages.ts")).parseLargeMessage(native, message),
  };
}

/** Returns the description of an abnormal close; null after a normal one. */
export function closeProblem({ errno, syscall }: { errno: number | null; syscall: string }): string | null {
  return errno === null ? null : `${syscall} ${systemErrors().getSystemErrorName(-errno)}`;
}

/** Loaded on demand: importing node:util evaluates all of its exports, some of which load further modules. */
export function systemErrors() {
  return process.getBuiltinModule("node:util");
}
