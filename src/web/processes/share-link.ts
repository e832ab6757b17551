import type { AttachRole } from "../../client/browser.ts";

/** One process, and the token that shows it. */
export interface ShareLink {
  token: string;
  handle: string;
  /** Role claimed by the link. The server enforces the actual role. */
  role: AttachRole;
}

/** A tab that was opened by a link keeps it across a reload; other tabs and the history never have it. */
const KEPT = "procwire.share";
const LINK = /^#share=([\w.-]+)&process=([a-z2-7]{12})(&role=viewer)?$/;

/** In the fragment, which is sent to no server and appears in no log. */
export function shareUrl(link: ShareLink): string {
  return `${location.origin}/${fragmentOf(link)}`;
}

/** Takes the link out of the address, so that it is in no history entry and no screenshot; null: the tab has none. */
export function takeShareLink(): ShareLink | null {
  const link = parseLink(location.hash);
  if (link) {
    sessionStorage.setItem(KEPT, fragmentOf(link));
    history.replaceState(null, "", `${location.pathname}#/process/${link.handle}`);
    return link;
  }
  const kept = parseLink(sessionStorage.getItem(KEPT) ?? "");
  // The link is dropped once the user signs in or opens another page.
  if (!kept || location.hash !== `#/process/${kept.handle}`) {
    sessionStorage.removeItem(KEPT);
    return null;
  }
  return kept;
}

function parseLink(fragment: string): ShareLink | null {
  const [, token, handle, viewer] = LINK.exec(fragment) ?? [];
  if (token === undefined || handle === undefined) return null;
  return { token, handle, role: viewer === undefined ? "driver" : "viewer" };
}

function fragmentOf({ token, handle, role }: ShareLink): string {
  return `#share=${token}&process=${handle}${role === "viewer" ? "&role=viewer" : ""}`;
}

/** The sub-protocols by which a page sends its token. */
export function tokenProtocols(token: string): string[] {
  const encoded = btoa(token).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return ["procwire.v1", `procwire.token.${encoded}`];
}
