/** CSS is bundled separately; importing a stylesheet has no value. */
declare module "*.css";
