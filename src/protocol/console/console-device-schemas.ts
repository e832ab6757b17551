import { array, boolean, type Infer, object, string, u64 } from "../schema.ts";

/** Schemas of the console's list of signed-in devices. */

export const deviceList = object("DeviceList", () => ({
  devices: array(
    object("SignedInDevice", () => ({
      id: u64,
      /** `user-agent` of the browser that signed in. */
      device: string,
      /** By the wall clock, for display. */
      signedInAtMs: u64,
      lastUsedAtMs: u64,
      expiresAtMs: u64,
      /** True for the browser that sends the request. */
      isCurrent: boolean,
    })),
  ),
}));

/** A console session as its principal sees it. */
export type SignedInDevice = Infer<typeof deviceList>["devices"][number];
