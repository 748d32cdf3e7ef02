//! Randomness of waits.

/// Any number.
pub(crate) fn random() -> u32 {
    let mut bytes = [0; 4];
    // Without randomness the wait is the whole one.
    let _ = rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes);
    u32::from_le_bytes(bytes)
}
