//! Reports of claims in hand to the ledger, and claims that are given back.

use sawmill_engine::fault;
use sawmill_engine::model::{Report, Token};

use super::InFlight;
use super::claim::HeldClaim;
use super::message::Ticket;

impl InFlight {
    /// Returns the reports of a source's claims that have something new.
    pub(crate) fn reports(&self, source: usize) -> Vec<(Ticket, Report)> {
        let claims = self.claims_of(source).filter(|(_, claim)| claim.is_dirty());
        claims.map(|(ticket, claim)| (*ticket, claim.report())).collect()
    }

    /// Notes that a report is in the ledger. A claim without open messages is closed there, and removed here.
    pub(crate) fn reported(&mut self, ticket: Ticket, report: &Report) {
        if self.claims.get_mut(&ticket).is_some_and(|claim| claim.reported(report)) {
            self.claims.remove(&ticket);
        }
    }

    /// Lists the sources whose claims in hand have something new to report.
    pub(crate) fn dirty(&self) -> Vec<usize> {
        let mut sources: Vec<usize> =
            self.claims.values().filter(|claim| claim.is_dirty()).map(|claim| claim.source).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    /// Lists the claims in hand of a source, with their tokens.
    pub(crate) fn tokens(&self, source: usize) -> Vec<(Ticket, Token)> {
        self.claims_of(source).map(|(ticket, claim)| (*ticket, claim.token)).collect()
    }

    /// Returns the oldest ticket in hand, and the last one issued.
    pub(crate) fn tickets(&self) -> (Option<Ticket>, Ticket) {
        (self.claims.keys().next().copied(), self.tickets)
    }

    /// True if claims of this source are still to be given back.
    pub(crate) fn is_closing(&self, source: usize) -> bool {
        self.claims_of(source).any(|(_, claim)| claim.closing)
    }

    /// True if the claims of this source can be given back: they are closed, no handler runs for them, and
    /// none of their messages is settling.
    pub(crate) fn is_closed(&self, source: usize) -> bool {
        let mut claims = self.claims_of(source).map(|(_, claim)| claim).peekable();
        let running = |claim: &HeldClaim| claim.running() > 0 && !fault!(HandoverWhileRunning);
        claims.peek().is_some()
            && claims.all(|claim| claim.closing && !running(claim))
            && !self
                .settling
                .values()
                .any(|settling| settling.source == source && self.claims.contains_key(&settling.held.ticket))
    }

    /// Notes that the claims of this source were given back.
    pub(crate) fn gave_back(&mut self, source: usize) {
        self.claims.retain(|_, claim| claim.source != source);
    }

    fn claims_of(&self, source: usize) -> impl Iterator<Item = (&Ticket, &HeldClaim)> {
        self.claims.iter().filter(move |(_, claim)| claim.source == source)
    }
}
