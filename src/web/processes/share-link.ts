import type { AttachRole } from "../../client/browser.ts";

/** A process and the share token that grants access to it. */
export interface ShareLink {
  token: string;
  handle: string;
  /** Role claimed by the link. The server enforces the actual role. */
  role: AttachRole;
}

/** Key in the session storage, so that the link survives a reload of its tab; other tabs do not get it. */
const STORAGE_KEY = "procwire.share";
const LINK = /^#share=([\w.-]+)&process=([a-z2-7]{12})(&role=viewer)?$/;

/** Returns the URL of a share link. The token is in the fragment, which browsers do not send and servers do not log. */
export function shareUrl(link: ShareLink): string {
  return `${location.origin}/${toFragment(link)}`;
}

/** Returns the share link of this tab, or null. Removes it from the URL, so that no history entry or screenshot contains it. */
export function takeShareLink(): ShareLink | null {
  const link = parseLink(location.hash);
  if (link) {
    sessionStorage.setItem(STORAGE_KEY, toFragment(link));
    history.replaceState(null, "", `${location.pathname}#/process/${link.handle}`);
    return link;
  }
  const stored = parseLink(sessionStorage.getItem(STORAGE_KEY) ?? "");
  // The link is dropped once the user signs in or opens another page.
  if (!stored || location.hash !== `#/process/${stored.handle}`) {
    sessionStorage.removeItem(STORAGE_KEY);
    return null;
  }
  return stored;
}

function parseLink(fragment: string): ShareLink | null {
  const [, token, handle, viewer] = LINK.exec(fragment) ?? [];
  if (token === undefined || handle === undefined) return null;
  return { token, handle, role: viewer === undefined ? "driver" : "viewer" };
}

function toFragment({ token, handle, role }: ShareLink): string {
  return `#share=${token}&process=${handle}${role === "viewer" ? "&role=viewer" : ""}`;
}

/** Returns the WebSocket subprotocols that carry the token. */
export function tokenProtocols(token: string): string[] {
  const encoded = btoa(token).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return ["procwire.v1", `procwire.token.${encoded}`];
}
